/** Two processes on one database and one Temporal: shards shared, one killed, one cap for both. */
import { beforeAll, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';
import { audit, ended, expectSequencesWithoutGaps, seedCrowd, startReady } from './support.ts';

const CAP = 7;
let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
});

/** Living owners and how many shards each holds. */
async function shares(): Promise<Map<string, number>> {
  const rows = await engine.db.query(
    `select owner, count(*)::int as shards from posthaste.shards where lease_until > clock_timestamp() group by owner`,
  );
  return new Map(rows.rows.map((row) => [row.owner, row.shards]));
}

const ownedBy = (pid: number) => (owners: Map<string, number>) =>
  [...owners].reduce((sum, [owner, shards]) => sum + (owner.split('/')[1] === String(pid) ? shards : 0), 0);

describe('two relay and worker processes', () => {
  it('share the shards; when one is killed the other takes over within 10 s, and every cap holds throughout', async () => {
    // The hot endpoint is told apart by a receiver of its own, whose high-water mark is its own.
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 150 }) });
    const hot = await startReceiver({ respond: () => ({ status: 200, delayMs: 10 }) });
    const crowd = await seedCrowd(engine.db, {
      name: 'fleet',
      tenants: 16,
      endpoints: 2,
      url: receiver.url,
      timeoutMs: 1_000,
    });
    await seedTenant(engine.db, 'hot');
    await seedEndpoint(engine.db, 'hot', { url: `${hot.url}/hot/0`, cap: CAP, timeoutMs: 1_000 });
    const heat = async (): Promise<number> => {
      await engine.db.query(
        `select count(posthaste.enqueue('hot', 'fault.test', json_build_object('n', g))) from generate_series(1, 600) g`,
      );
      return 600;
    };

    const a = await startReady(engine, 'all');
    const b = await startReady(engine, 'all');
    await until(shares, (owners) => ownedBy(a.pid)(owners) === 8 && ownedBy(b.pid)(owners) === 8, 30_000);

    let deliveries = (await crowd.enqueue(40)) + (await heat());
    await Promise.all([receiver.waitForRequest((r) => r.concurrent >= 60, 60_000), hot.waitFor(50, 60_000)]);
    const killedAt = performance.now();
    await a.kill();
    deliveries += await crowd.enqueue(15);
    await until(shares, (owners) => ownedBy(b.pid)(owners) === 16, 30_000);
    const takeover = performance.now() - killedAt;
    expect(takeover).toBeLessThan(10_000);

    const c = await startReady(engine, 'all');
    deliveries += await crowd.enqueue(5);
    await until(shares, (owners) => ownedBy(b.pid)(owners) === 8 && ownedBy(c.pid)(owners) === 8, 30_000);
    await ended(engine.db, deliveries, 240_000);
    const requests = [...receiver.requests, ...hot.requests];
    const result = await audit(engine.db, requests);
    console.log(
      `takeover in ${Math.round(takeover)} ms; high water ${hot.highWater()} of ${CAP}: ${JSON.stringify(result)}`,
    );
    expect(result.deliveries).toBe(deliveries);
    expect(result.unknown).toBeGreaterThan(0); // the kill met requests under way
    expect(hot.highWater()).toBeLessThanOrEqual(CAP);
    expect(await b.terminate()).toBe(0);
    expect(await c.terminate()).toBe(0);
    await receiver.close();
    await hot.close();
  }, 480_000);

  it('send to one endpoint together and never exceed its cap at the receiver', async () => {
    // A relay apart from its workers: an own worker would get every group by its eager start.
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 15 }) });
    await seedTenant(engine.db, 'cap');
    const before = (await engine.db.query('select count(*)::int as c from posthaste.deliveries')).rows[0].c;
    await seedEndpoint(engine.db, 'cap', { url: `${receiver.url}/cap`, cap: CAP });
    const senders = new Set<string>();
    const a = await startReady(engine, 'worker', { LOG_LEVEL: 'debug' });
    const b = await startReady(engine, 'worker', { LOG_LEVEL: 'debug' });
    const relay = await startReady(engine, 'relay');
    await engine.db.query(
      `select count(posthaste.enqueue('cap', 'fault.test', json_build_object('n', g))) from generate_series(1, 2000) g`,
    );
    await ended(engine.db, before + 2_000, 120_000);
    for (const process of [a, b])
      if (process.lines.some((line) => /"msg":"attempt"/.test(line))) senders.add(String(process.pid));
    console.log(`high water ${receiver.highWater()} of ${CAP}, sent by ${senders.size} processes`);
    expect(senders.size).toBe(2);
    expect(receiver.highWater()).toBeLessThanOrEqual(CAP);
    expect(receiver.requests).toHaveLength(2_000);
    await expectSequencesWithoutGaps(engine.db);
    expect(await a.terminate()).toBe(0);
    expect(await b.terminate()).toBe(0);
    expect(await relay.terminate()).toBe(0);
    await receiver.close();
  }, 300_000);
});
