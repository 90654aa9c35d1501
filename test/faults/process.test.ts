/** A quick look at stopping and starting whole processes; process.heavy.test.ts kills them. */
import { beforeAll, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { audit, ended, seedCrowd, startReady } from './support.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
});

describe('SIGTERM in the middle of 400 deliveries', () => {
  it('costs neither a repeat nor an unknown attempt, and the next process delivers the rest', async () => {
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 20 }) });
    const crowd = await seedCrowd(engine.db, { name: 'stop', tenants: 4, endpoints: 2, url: receiver.url });
    const first = await startReady(engine, 'all');
    const deliveries = await crowd.enqueue(50);
    await receiver.waitFor(60, 20_000);
    expect(await first.terminate()).toBe(0);
    expect(receiver.requests.length).toBeLessThan(deliveries);
    const second = await startReady(engine, 'all');
    await ended(engine.db, deliveries, 40_000);
    expect(await audit(engine.db, receiver.requests)).toEqual({
      requests: deliveries,
      deliveries,
      repeats: 0,
      unknown: 0,
    });
    expect(await second.terminate()).toBe(0);
    await receiver.close();
  }, 90_000);
});
