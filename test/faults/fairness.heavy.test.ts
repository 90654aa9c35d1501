/** One tenant's flood and another's trickle; one endpoint that could take more than everything. */
import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany } from '../support/seed.ts';
import { ended, type Running, seedCrowd, startReady } from './support.ts';

let engine: TestEngine;
let process: Running;
beforeEach(async () => {
  engine = await prepareEngine();
  process = await startReady(engine, 'all');
  return async () => {
    expect(await process.terminate(60_000)).toBe(0);
  };
}, 60_000);

describe('a tenant that floods 20,000 events to a slow endpoint', () => {
  it('drains, and another tenant with five events a second hardly notices', async () => {
    const FLOOD = 20_000;
    const slow = await startReceiver({ respond: () => ({ status: 200, delayMs: 50 }) });
    const quick = await startReceiver();
    const flood = await seedCrowd(engine.db, { name: 'flood', tenants: 1, endpoints: 1, url: slow.url });
    const calm = await seedCrowd(engine.db, { name: 'calm', tenants: 1, endpoints: 1, url: quick.url });
    const committed = new Map<string, number>();
    let flooding = true;
    const started = performance.now();
    await flood.enqueue(FLOOD);
    const trickle = (async () => {
      while (flooding) {
        const [id] = await enqueueMany(engine.db, calm.tenants[0]!, 'a.b', 1);
        committed.set(id!, Date.now());
        await delay(200);
      }
    })();
    await slow.waitFor(FLOOD, 400_000);
    const took = (performance.now() - started) / 1_000;
    flooding = false;
    await trickle;
    await quick.waitFor(committed.size, 20_000);
    const latencies = quick.requests
      .map((request) => request.at - committed.get(request.webhookId)!)
      .sort((a, b) => a - b);
    const at = (share: number) =>
      latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))]!;
    console.log(
      `flood: ${Math.round(FLOOD / took)}/s (cap 10 at 50 ms allows 200/s), high water ${slow.highWater()}; beside it ${latencies.length} events, p50 ${at(0.5)}, p99 ${at(0.99)}, max ${at(1)} ms (goal: p99 1000)`,
    );
    await ended(engine.db, FLOOD + committed.size, 60_000);
    expect(slow.highWater()).toBeLessThanOrEqual(10);
    expect(slow.requests).toHaveLength(FLOOD);
    expect(quick.requests).toHaveLength(committed.size);
    // The flood takes minutes: whoever waits for it waits far longer than this.
    expect(at(0.99)).toBeLessThan(5_000);
    await Promise.all([slow.close(), quick.close()]);
  }, 600_000);
});

describe('one hot endpoint with cap 10 and a receiver that takes 1 ms', () => {
  it('gets everything within its cap (the rate is printed)', async () => {
    const COUNT = 10_000;
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 1 }) });
    const hot = await seedCrowd(engine.db, { name: 'hot', tenants: 1, endpoints: 1, url: receiver.url });
    await hot.enqueue(COUNT);
    await receiver.waitFor(COUNT, 240_000);
    const took = (receiver.requests.at(-1)!.at - receiver.requests[0]!.at) / 1_000;
    console.log(
      `a hot endpoint: ${Math.round(COUNT / took)}/s with cap 10 (goal on an idle machine: 1000/s)`,
    );
    await ended(engine.db, COUNT, 60_000);
    expect(receiver.highWater()).toBeLessThanOrEqual(10);
    expect(receiver.requests).toHaveLength(COUNT);
    await receiver.close();
  }, 480_000);
});
