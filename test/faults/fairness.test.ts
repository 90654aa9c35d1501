/** A short flood beside a trickle; fairness.heavy.test.ts has 20,000 events and measures. */
import { setTimeout as delay } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { audit, ended, seedCrowd } from './support.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
});

describe('a tenant that floods a slow endpoint', () => {
  it('drains within its cap, and whoever comes later with one event does not wait for it', async () => {
    const slow = await startReceiver({ respond: () => ({ status: 200, delayMs: 100 }) });
    const quick = await startReceiver();
    const flood = await seedCrowd(engine.db, {
      name: 'flood',
      tenants: 1,
      endpoints: 1,
      url: slow.url,
      cap: 5,
    });
    const calm = await seedCrowd(engine.db, { name: 'calm', tenants: 1, endpoints: 1, url: quick.url });
    const flooded = await flood.enqueue(400); // 8 s at least
    await slow.waitFor(20);
    for (let i = 0; i < 10; i++) {
      await calm.enqueue(1);
      await delay(50); // a trickle
    }
    await quick.waitFor(10, 20_000);
    expect(slow.requests.length).toBeLessThan(flooded);
    await ended(engine.db, flooded + 10, 60_000);
    expect(slow.highWater()).toBeLessThanOrEqual(5);
    expect(await audit(engine.db, [...slow.requests, ...quick.requests])).toMatchObject({
      deliveries: flooded + 10,
      repeats: 0,
      unknown: 0,
    });
    await Promise.all([slow.close(), quick.close()]);
  }, 90_000);
});
