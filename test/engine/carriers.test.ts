/** Groups that join a running dispatch: one workflow for what comes in a row, and nothing lost when it goes away. */
import { Client, Connection } from '@temporalio/client';
import { beforeAll, expect, it } from 'vitest';
import type { DispatchResult } from '../../src/workflows/contract.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let client: Client;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const dispatches = async (more = ''): Promise<string[]> => {
  const found: string[] = [];
  for await (const { workflowId } of client.workflow.list({ query: `WorkflowType = 'dispatch'${more}` }))
    found.push(workflowId);
  return found;
};
const groups = async (): Promise<number> =>
  (await engine.db.query('select count(*)::int as n from posthaste.dispatches')).rows[0].n;

it('many groups in a row are one workflow, whose result counts them all, and each delivery is sent once', async () => {
  await seedTenant(engine.db, 'row');
  const receiver = await startReceiver();
  await seedEndpoint(engine.db, 'row', { url: receiver.url, cap: 50 });
  let sent = 0;
  for (; sent < 600; sent += 60) {
    await enqueueMany(engine.db, 'row', 'a.b', 60);
    await receiver.waitFor(sent + 60);
  }
  const results = await until(
    async () => {
      const found = await dispatches();
      return Promise.all(
        found.map((id) => client.workflow.getHandle(id).result() as Promise<DispatchResult>),
      );
    },
    (all) => all.reduce((sum, { delivered }) => sum + delivered, 0) === sent,
    60_000,
  );
  expect(results.length).toBeLessThanOrEqual(4); // the first bursts may come before the first activity has begun
  expect(new Set(receiver.requests.map(({ headers }) => headers['webhook-id'])).size).toBe(sent);
  expect(receiver.requests).toHaveLength(sent);
  await until(groups, (n) => n === 0);
  await receiver.close();
}, 90_000);

it('a group that joins costs Temporal nothing', async () => {
  await seedTenant(engine.db, 'joins');
  const receiver = await startReceiver();
  await seedEndpoint(engine.db, 'joins', { url: receiver.url, cap: 50 });
  await enqueueMany(engine.db, 'joins', 'a.b', 100);
  await receiver.waitFor(100);
  await until(groups, (n) => n === 0);
  await until(
    () => dispatches(` and ExecutionStatus = 'Running'`),
    (ids) => ids.length > 0, // Temporal’s list is a moment late
  );
  const known = new Set(await dispatches());
  await enqueueMany(engine.db, 'joins', 'a.b', 100);
  await receiver.waitFor(200);
  await until(groups, (n) => n === 0);
  expect((await dispatches()).filter((id) => !known.has(id))).toEqual([]);
  await receiver.close();
}, 60_000);

it('a terminated dispatch loses nothing: what had joined it is made again into groups', async () => {
  await seedTenant(engine.db, 'ended');
  let release: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const receiver = await startReceiver({
    respond: async (_request, n) => {
      if (n < 4) await held;
      return { status: 200 };
    },
  });
  await seedEndpoint(engine.db, 'ended', { url: receiver.url, cap: 4 });
  await enqueueMany(engine.db, 'ended', 'a.b', 40);
  await receiver.waitFor(4);
  const running = await until(
    () => dispatches(` and ExecutionStatus = 'Running'`),
    (ids) => ids.length > 0,
  );
  await enqueueMany(engine.db, 'ended', 'a.b', 40);
  for (const id of running)
    await client.workflow
      .getHandle(id)
      .terminate('a test')
      .catch(() => {});
  release();
  await receiver.waitFor(80);
  await until(
    async () =>
      (await engine.db.query(`select count(*)::int as n from posthaste.work where tenant = 'ended'`)).rows[0]
        .n,
    (n) => n === 0,
    60_000,
  );
  await receiver.close();
}, 120_000);
