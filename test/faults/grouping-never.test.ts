/** POSTHASTE_GROUPING=never: one workflow per delivery, retries too, whatever the load. */
import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';
import { ended } from './support.ts';

let engine: TestEngine;
let connection: Connection;
beforeAll(async () => {
  engine = await prepareEngine({ grouping: 'never' });
  await engine.start();
  connection = await Connection.connect({ address: engine.config.temporal.address });
});
afterAll(() => connection.close());

/** Ids of all workflows of the namespace, sorted; several runs of an id count once. */
async function workflows(): Promise<string[]> {
  const client = new Client({ connection, namespace: engine.config.temporal.namespace });
  const ids = new Set<string>();
  for await (const found of client.workflow.list()) ids.add(found.workflowId);
  return [...ids].sort();
}

const deliveries = async (): Promise<{ id: string; n: number }[]> =>
  (await engine.db.query('select id, n from posthaste.deliveries order by id')).rows;

/** Everything that ended has had delivery/<id>, and there is nothing else. */
async function expectOneWorkflowEach(): Promise<void> {
  const wanted = (await deliveries()).map(({ id }) => `delivery/${id}`);
  // The list lags behind what happened.
  expect(await until(workflows, (ids) => ids.length >= wanted.length)).toEqual(wanted);
}

describe('with grouping never', () => {
  it('50 deliveries get a workflow each, through their retries', async () => {
    await seedTenant(engine.db, 'each');
    const tries = new Map<string, number>();
    const receiver = await startReceiver({
      respond: ({ path, webhookId }) => {
        const key = `${path} ${webhookId}`;
        tries.set(key, (tries.get(key) ?? 0) + 1);
        return { status: path === '/fails-twice' && tries.get(key)! < 3 ? 404 : 200 };
      },
    });
    await seedEndpoint(engine.db, 'each', { url: `${receiver.url}/works` });
    await seedEndpoint(engine.db, 'each', {
      url: `${receiver.url}/fails-twice`,
      policy: { schedule: ['50ms', '1800ms'] },
    });
    await enqueueMany(engine.db, 'each', 'a.b', 25);
    await ended(engine.db, 50, 30_000);
    expect((await deliveries()).map(({ n }) => n).sort()).toEqual([
      ...Array(25).fill(1),
      ...Array(25).fill(3),
    ]);
    await expectOneWorkflowEach();
    await receiver.close();
  }, 60_000);
});
