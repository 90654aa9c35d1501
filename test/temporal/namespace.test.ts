import { expect, it } from 'vitest';
import { prepareNamespace } from '../../src/temporal/namespace.ts';
import { createNamespace } from '../support/temporal.ts';

it('prepares a bare namespace once: three days of retention and the search attributes', async () => {
  const { address, namespace, client } = await createNamespace({ attributes: false });
  expect(await prepareNamespace({ address }, namespace)).toEqual([
    `namespace ${namespace}: retention is 3 days now`,
    `namespace ${namespace}: added WhTenant, WhEndpoint, WhEventType, WhState, WhAttempt`,
  ]);
  expect(await prepareNamespace({ address }, namespace)).toEqual([]);
  const { config } = await client.workflowService.describeNamespace({ namespace });
  expect(Number(config!.workflowExecutionRetentionTtl!.seconds)).toBe(259_200);
});

it('reports what the server refuses instead of failing', async () => {
  const { address } = await createNamespace({ attributes: false });
  const said = await prepareNamespace({ address }, 'no-such-namespace');
  expect(said).toHaveLength(2);
  for (const line of said) expect(line).toMatch(/not possible here/);
});
