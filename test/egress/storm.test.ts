/** Many posts to many receivers of every manner at once: each gets one result, and nothing is left behind. */
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { testEgress } from '../support/hostile/egress.ts';
import { OK, receive } from '../support/hostile/listen.ts';

/** mulberry32: a small repeatable source, so that a failure can be run again. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const MANNERS: readonly ((socket: Socket) => void)[] = [
  (socket) => socket.write(OK),
  (socket) => socket.write(OK),
  (socket) => socket.end(OK),
  (socket) => socket.resetAndDestroy(),
  (socket) => socket.destroy(),
  () => {},
  (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok'),
  (socket) => socket.write('HTTP/1.1 100 Continue\r\n\r\n'),
  (socket) => socket.write('garbage\r\n\r\n'),
  (socket) => socket.write('HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'),
];

test.each([1, 2, 3])(
  'every post of storm %i gets one result in time, within all caps, and all is given back',
  async (seed) => {
    const chance = random(seed);
    const pick = <T>(list: readonly T[]) => list[Math.floor(chance() * list.length)] as T;
    await using receiver = await receive((socket) => pick(MANNERS)(socket), '0.0.0.0');
    await using client = testEgress({ maxSockets: 25 });
    const controllers = Array.from({ length: 5 }, () => new AbortController());
    const written: boolean[] = [];
    let most = 0;
    const posts = Array.from({ length: 600 }, async (_, i) => {
      const host = 1 + Math.floor(chance() * 12);
      const timeoutMs = 100 + Math.floor(chance() * 1_500);
      const signal = chance() < 0.1 ? pick(controllers).signal : undefined;
      const started = performance.now();
      const result = await client.send(`http://127.0.0.${host}:${receiver.port}/${i}`, {
        endpoint: `ep_${host}`,
        revision: 1 + Math.floor(i / 200),
        connections: 1 + (host % 4),
        timeoutMs,
        signal,
      });
      most = Math.max(most, client.egress.stats().openSockets);
      expect(performance.now() - started).toBeLessThan(timeoutMs + 5_000);
      written.push(result.written);
      if (result.class === 'ok') expect(result.status).toBe(200);
      return result.class;
    });
    for (const controller of controllers) controller.abort();
    const classes = new Set(await Promise.all(posts));
    expect(classes).toContain('ok');
    expect(classes).not.toContain('unknown');
    expect(classes).not.toContain('local');
    expect(classes).not.toContain('stalled');
    expect(most).toBeLessThanOrEqual(25);
    expect(receiver.requests.length).toBeLessThanOrEqual(
      written.filter(Boolean).length + client.egress.stats().freshRetries,
    );

    receiver.cut();
    await expect
      .poll(() => client.egress.stats())
      .toMatchObject({ pools: 0, openSockets: 0, idleSockets: 0, queued: 0 });
    const after = await receive((socket) => socket.write(OK));
    expect(await client.send(`http://127.0.0.1:${after.port}/`)).toMatchObject({ class: 'ok' });
    await after[Symbol.asyncDispose]();
  },
);
