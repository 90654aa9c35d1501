/** PostgreSQL goes away while receivers hold requests, and answers come before it is back. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import { prepareEngine } from '../support/engine.ts';
import { startOwnPostgres } from '../support/own-postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { type Audit, audit, ended, seedCrowd } from './support.ts';

/** 60 requests of groups and one of a workflow of its own are held; each is recorded once and none is sent again. */
export async function outageWithHeldAnswers(options: {
  awayMs: number;
  how: 'fast' | 'immediate';
}): Promise<Audit> {
  const postgres = await startOwnPostgres();
  const engine = await prepareEngine({ database: postgres });
  let answer: () => void = () => {};
  let gate: Promise<void> = new Promise((resolve) => {
    answer = resolve;
  });
  const receiver = await startReceiver({ respond: () => ({ status: 200, until: gate }) });
  const crowd = await seedCrowd(engine.db, {
    name: 'held',
    tenants: 3,
    endpoints: 2,
    url: receiver.url,
    cap: 11,
  });
  const process = await engine.start();
  await crowd.enqueue(1);
  await receiver.waitFor(6, 20_000); // these have workflows of their own
  await crowd.enqueue(10);
  await receiver.waitFor(66, 20_000); // these came in groups
  await postgres.stop(options.how);
  answer();
  await delay(options.awayMs); // the outage itself
  gate = Promise.resolve();
  await postgres.restart();
  await ended(engine.db, 66, 60_000);
  // The engine goes on as before.
  const deliveries = 66 + (await crowd.enqueue(20));
  await ended(engine.db, deliveries, 60_000);
  const result = await audit(engine.db, receiver.requests);
  expect(result).toEqual({ requests: deliveries, deliveries, repeats: 0, unknown: 0 });
  await process.stop();
  await receiver.close();
  return result;
}
