/** POSTHASTE_GROUPING=never where groups would be most welcome: many at once, and an endpoint without free slots. */
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
  it('one event for 20 endpoints, 30 times at once, is 600 workflows and no group', async () => {
    await seedTenant(engine.db, 'burst');
    const receiver = await startReceiver();
    for (let e = 0; e < 20; e++) await seedEndpoint(engine.db, 'burst', { url: `${receiver.url}/${e}` });
    await enqueueMany(engine.db, 'burst', 'a.b', 30);
    await ended(engine.db, 600, 120_000);
    expect(receiver.requests).toHaveLength(600);
    await expectOneWorkflowEach();
    await receiver.close();
  }, 240_000);

  it('deliveries that find no slot for long keep their workflows, and all arrive', async () => {
    await seedTenant(engine.db, 'narrow');
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 600 }) });
    await seedEndpoint(engine.db, 'narrow', { url: receiver.url, cap: 1 });
    const before = (await deliveries()).length;
    await enqueueMany(engine.db, 'narrow', 'a.b', 30);
    await ended(engine.db, before + 30, 120_000);
    expect(receiver.requests).toHaveLength(30);
    expect(receiver.highWater()).toBe(1);
    await expectOneWorkflowEach();
    await receiver.close();
  }, 240_000);
});
