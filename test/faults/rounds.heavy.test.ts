/**
 * 200 rounds of worker trouble at random instants: killed, or stopped past their claims and continued. The rounds overlap
 * over a pool of workers, so that the whole takes minutes. Nothing may be lost, no attempt number may be missing, and each
 * repeat at the receiver must have its attempt in the log: unknown, or past its deadline in a process that was stopped.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { audit, ended, type Running, seedCrowd, startReady } from './support.ts';

const ROUNDS = 200;
/** A kill costs the start of a process, a stop costs nothing: many workers are stopped, few killed. */
const KILLED = 2;
const STOPPED = 10;
/** Claims last the endpoint's timeout (1 s) and 10 s; they are reaped 15 s after that. */
const PAST_CLAIM_MS = 11_500;
const PAST_REAP_MS = 27_500;

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
});

const between = (least: number, most: number): number => least + Math.random() * (most - least);

describe('a fleet of workers', () => {
  it(`through ${ROUNDS} kills and stops loses nothing, and explains each repeat`, async () => {
    const receiver = await startReceiver({
      respond: () => ({ status: 200, delayMs: between(20, 500) }),
    });
    const crowd = await seedCrowd(engine.db, {
      name: 'rounds',
      tenants: 5,
      endpoints: 4,
      url: receiver.url,
      timeoutMs: 1_000,
    });
    const relay = await startReady(engine, 'relay');
    const steady = await startReady(engine, 'worker');
    const made = { kills: 0, stops: 0, stopsPastReap: 0 };
    const over = (): boolean => made.kills + made.stops >= ROUNDS;

    let deliveries = 0;
    const feed = async (): Promise<void> => {
      while (!over()) {
        deliveries += await crowd.enqueue(1);
        await delay(500);
      }
    };
    const killed = async (): Promise<Running> => {
      for (;;) {
        const worker = await startReady(engine, ['worker', '--lanes', 'first']); // the fewer, the sooner it is up
        await delay(between(100, 1_500));
        if (over()) return worker;
        made.kills++;
        await worker.kill();
      }
    };
    const stopped = async (): Promise<Running> => {
      const worker = await startReady(engine, 'worker');
      while (!over()) {
        made.stops++;
        const long = made.stops % 10 === 0;
        if (long) made.stopsPastReap++;
        process.kill(worker.pid, 'SIGSTOP');
        await delay(
          long ? between(PAST_REAP_MS, PAST_REAP_MS + 2_000) : between(PAST_CLAIM_MS, PAST_CLAIM_MS + 3_000),
        );
        process.kill(worker.pid, 'SIGCONT');
        await delay(between(200, 2_000));
      }
      return worker;
    };
    const began = performance.now();
    const [, ...workers] = await Promise.all([
      feed(),
      ...Array.from({ length: KILLED }, killed),
      ...Array.from({ length: STOPPED }, stopped),
    ]);
    const roundsMs = performance.now() - began;
    await ended(engine.db, deliveries, 180_000);
    // A process that was stopped can't say what the receiver has answered meanwhile.
    const result = await audit(engine.db, receiver.requests, ['worker_lost', 'stalled', 'deadline']);
    console.log(
      `${JSON.stringify(made)} in ${Math.round(roundsMs / 1_000)} s, all in ${Math.round((performance.now() - began) / 1_000)} s: ${JSON.stringify(result)}`,
    );
    expect(result.deliveries).toBe(deliveries);
    expect(made.stopsPastReap).toBeGreaterThan(0);
    expect(result.unknown).toBeGreaterThan(20); // the rounds met requests under way
    for (const process of [...(workers as Running[]), steady, relay])
      expect(await process.terminate()).toBe(0);
    await receiver.close();
  }, 900_000);
});
