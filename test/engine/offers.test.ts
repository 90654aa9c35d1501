/** A relay that runs apart from its workers: groups join dispatches of other processes, and lose nothing with them. */
import { Client, Connection } from '@temporalio/client';
import { beforeAll, expect, it } from 'vitest';
import { ended, seedCrowd, startReady } from '../faults/support.ts';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';

let engine: TestEngine;
let client: Client;
beforeAll(async () => {
  engine = await prepareEngine();
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const dispatches = async (): Promise<number> =>
  (await client.workflow.count("WorkflowType = 'dispatch'")).count;

it('groups of another process join a running dispatch, and get workflows again when its worker is killed', async () => {
  const receiver = await startReceiver();
  const crowd = await seedCrowd(engine.db, { name: 'apart', tenants: 10, endpoints: 1, url: receiver.url });
  const relay = await startReady(engine, 'relay');
  const worker = await startReady(engine, 'worker');
  let sent = 0;
  const burst = async (each: number): Promise<void> => {
    sent += await crowd.enqueue(each);
    await receiver.waitFor(sent, 60_000);
  };
  await burst(10);
  const before = await dispatches();
  for (let n = 0; n < 20; n++) await burst(4);
  expect((await dispatches()) - before).toBeLessThanOrEqual(12); // of at least twenty groups: one every 3 s, and those that a starved worker let wait

  await ended(engine.db, sent, 60_000); // else what was not yet recorded is sent again
  await worker.kill();
  const successor = await startReady(engine, 'worker');
  for (let n = 0; n < 5; n++) await burst(4);
  await ended(engine.db, sent, 60_000);
  expect(receiver.requests).toHaveLength(sent);
  await relay.terminate();
  await successor.terminate();
  await receiver.close();
}, 180_000);
