/** The whole process killed or stopped in the middle of 2,000 deliveries, and what the next one makes of it. */
import { beforeEach, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { audit, ended, seedCrowd, startReady } from './support.ts';

const DELIVERIES = 2_000;
let engine: TestEngine;
let receiver: TestReceiver;

/** 2,000 deliveries for 20 endpoints of 5 tenants; answers take 30 ms, so that a kill always meets some. */
beforeEach(async () => {
  engine = await prepareEngine();
  receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 30 }) });
  const crowd = await seedCrowd(engine.db, {
    name: 'crowd',
    tenants: 5,
    endpoints: 4,
    url: receiver.url,
    timeoutMs: 2_000,
  });
  expect(await crowd.enqueue(100)).toBe(DELIVERIES);
  return () => receiver.close();
}, 60_000);

describe('a process with 2,000 deliveries', () => {
  it('delivers each of them once when nobody disturbs it', async () => {
    const process = await startReady(engine, 'all');
    await ended(engine.db, DELIVERIES, 120_000);
    expect(await audit(engine.db, receiver.requests)).toEqual({
      requests: DELIVERIES,
      deliveries: DELIVERIES,
      repeats: 0,
      unknown: 0,
    });
    expect(await process.terminate()).toBe(0);
  }, 240_000);

  it('loses none to kill -9, and each repeat follows an unknown attempt', async () => {
    for (const after of [300, 900, 1_500]) {
      const process = await startReady(engine, 'all');
      await receiver.waitFor(after, 120_000);
      await process.kill();
    }
    const last = await startReady(engine, 'all');
    await ended(engine.db, DELIVERIES, 240_000);
    const result = await audit(engine.db, receiver.requests);
    console.log(`three kills: ${JSON.stringify(result)}`);
    expect(result.deliveries).toBe(DELIVERIES);
    expect(result.unknown).toBeGreaterThan(0);
    expect(await last.terminate()).toBe(0);
  }, 480_000);

  it('stops within its grace at SIGTERM without a repeat or an unknown attempt; the next one delivers the rest', async () => {
    const stops: number[] = [];
    for (const after of [300, 900]) {
      const process = await startReady(engine, 'all');
      await receiver.waitFor(after, 120_000);
      const at = performance.now();
      expect(await process.terminate(60_000)).toBe(0);
      stops.push(Math.round(performance.now() - at));
      const open = await engine.db.query(
        `select (select coalesce(sum(in_flight), 0)::int from posthaste.endpoint_state) as in_flight,
           (select count(*)::int from posthaste.shards where lease_until > now()) as leases`,
      );
      expect(open.rows[0]).toEqual({ in_flight: 0, leases: 0 });
    }
    expect(receiver.requests.length).toBeLessThan(DELIVERIES);
    const last = await startReady(engine, 'all');
    await ended(engine.db, DELIVERIES, 240_000);
    const result = await audit(engine.db, receiver.requests);
    console.log(`SIGTERM took ${stops.join(' and ')} ms: ${JSON.stringify(result)}`);
    expect(result).toEqual({ requests: DELIVERIES, deliveries: DELIVERIES, repeats: 0, unknown: 0 });
    expect(await last.terminate()).toBe(0);
  }, 480_000);
});
