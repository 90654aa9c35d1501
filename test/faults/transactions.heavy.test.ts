/** Other people's transactions: a writer in another database held for a minute, and an idle snapshot in ours. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { ended, type Running, seedCrowd, startReady } from './support.ts';

const HELD_MS = 60_000;
let engine: TestEngine;
let receiver: TestReceiver;
let process: Running;
beforeEach(async () => {
  engine = await prepareEngine();
  receiver = await startReceiver();
  process = await startReady(engine, 'all');
  return async () => {
    expect(await process.terminate()).toBe(0);
    await receiver.close();
  };
}, 60_000);

async function openTransaction(url: string, ...statements: string[]): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'stranger' });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  return client;
}

describe('a writing transaction held for 60 s in another database of the cluster', () => {
  it('holds up no event: each is received while it is still open', async () => {
    await seedCrowd(engine.db, { name: 'stranger', tenants: 4, endpoints: 1, url: receiver.url });
    const stranger = await openTransaction(
      engine.database.adminUrl,
      'begin',
      'create temporary table held (n int)',
      'insert into held values (1)',
    );
    const committed = new Map<string, number>();
    const until = Date.now() + HELD_MS;
    for (let i = 0; Date.now() < until; i++) {
      const result = await engine.db.query(`select posthaste.enqueue($1, 'fault.test', '{}') as id`, [
        `stranger${i % 4}`,
      ]);
      committed.set(result.rows[0].id, Date.now());
      await delay(100);
    }
    await receiver.waitFor(committed.size, 10_000);
    await stranger.query('rollback');
    await stranger.end();
    const latencies = receiver.requests
      .map((request) => request.at - committed.get(request.webhookId)!)
      .sort((a, b) => a - b);
    const at = (share: number) =>
      latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
    console.log(
      `${latencies.length} events beside a foreign transaction: p50 ${at(0.5)}, p99 ${at(0.99)}, max ${at(1)} ms (goal: max 1000)`,
    );
    expect(receiver.requests).toHaveLength(committed.size);
    // A second is the promise; ten leave room for a machine that is busy with other things. Waiting would take 60.
    expect(at(1)).toBeLessThan(10_000);
  }, 240_000);
});

describe('an idle snapshot held while 20,000 events flow', () => {
  it('does not halve the throughput of the last third against the first', async () => {
    const COUNT = 20_000;
    const crowd = await seedCrowd(engine.db, { name: 'idle', tenants: 20, endpoints: 1, url: receiver.url });
    // Warm: plans made, connections open.
    await crowd.enqueue(20);
    await ended(engine.db, 400, 60_000);
    const idle = await openTransaction(
      engine.config.databaseUrl,
      'begin isolation level repeatable read',
      'select count(*) from posthaste.endpoint_state',
    );
    const from = receiver.requests.length;
    for (let i = 0; i < 10; i++) await crowd.enqueue(COUNT / 20 / 10);
    await receiver.waitFor(from + COUNT, 240_000);
    const held = await idle.query(
      'select count(*)::int as c from posthaste.endpoint_state where in_flight = 0',
    );
    expect(held.rows[0].c).toBe(20); // it still sees what was there before
    await idle.query('rollback');
    await idle.end();
    const times = receiver.requests.slice(from).map((request) => request.at);
    const third = Math.floor(COUNT / 3);
    const rate = (first: number, last: number) => (third * 1_000) / Math.max(1, times[last]! - times[first]!);
    const [first, last] = [rate(0, third), rate(COUNT - 1 - third, COUNT - 1)];
    console.log(
      `an idle snapshot: ${Math.round(first)}/s in the first third, ${Math.round(rate(third, 2 * third))}/s in the second, ${Math.round(last)}/s in the last`,
    );
    await ended(engine.db, COUNT + 400, 60_000);
    expect(last).toBeGreaterThan(first / 2);
  }, 480_000);
});
