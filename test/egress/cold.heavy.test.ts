/** 20,000 endpoints that get one POST each must leave nothing behind. */
import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, receive } from '../support/hostile/listen.ts';

const ORIGINS = 20_000;
const PARALLEL = 200;
const MB = 1024 * 1024;

test('20,000 cold origins are served with few sockets, and descriptors and heap return to where they were', async () => {
  await using receiver = await receive(answer(OK), '0.0.0.0');
  await using client = testEgress();
  const post = async (i: number) => {
    const url = `http://127.1.${Math.floor(i / 250)}.${1 + (i % 250)}:${receiver.port}/`;
    const result = await client.send(url, { endpoint: `ep_${i}`, timeoutMs: 15_000 });
    expect(result.class).toBe('ok');
  };
  await post(0);
  const descriptors = () => readdirSync('/proc/self/fd').length;
  const before = { descriptors: descriptors(), heap: process.memoryUsage().heapUsed };
  let next = 1;
  let most = 0;
  const worker = async () => {
    while (next < ORIGINS) {
      await post(next++);
      most = Math.max(most, client.egress.stats().openSockets);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  expect(most).toBeLessThanOrEqual(PARALLEL + 128 + PARALLEL);
  await expect
    .poll(() => client.egress.stats(), { timeout: 10_000 })
    .toMatchObject({ pools: 0, openSockets: 0 });
  await receiver.allClosed();
  expect(descriptors()).toBeLessThanOrEqual(before.descriptors + 5);
  // The receiver keeps the text of every request; what is ours is far less.
  receiver.requests.length = 0;
  expect(process.memoryUsage().heapUsed - before.heap).toBeLessThan(150 * MB);
});
