/** Reuse, caps, retries on a fresh connection, and what ends a socket. */
import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, onConnect, receive } from '../support/hostile/listen.ts';

/** Answers the first request of each connection; what happens to the second is the test's business. */
const onSecond = (act: (socket: Socket) => void) =>
  receive((socket, _request, nth) => {
    if (nth === 0) socket.write(OK);
    else act(socket);
  });

describe('a pool', () => {
  test('opens no more connections than the cap, for 1,000 posts', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    const results = await Promise.all(
      Array.from({ length: 1_000 }, () => client.send(url, { connections: 4 })),
    );
    expect(results.every((result) => result.class === 'ok')).toBe(true);
    expect(receiver.connections()).toBeLessThanOrEqual(4);
    expect(receiver.requests).toHaveLength(1_000);
  });

  test('reuses one connection for posts in a row', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    for (let i = 0; i < 20; i++) await client.send(`http://127.0.0.1:${receiver.port}/`, { connections: 1 });
    expect(receiver.connections()).toBe(1);
  });

  test('is never shared by two tenants or two endpoints', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    for (const [tenant, endpoint] of [
      ['a', '1'],
      ['b', '1'],
      ['a', '2'],
    ] as const) {
      expect(await client.send(url, { tenant, endpoint })).toMatchObject({ reusedSocket: false });
    }
    expect(receiver.connections()).toBe(3);
  });

  test('starts anew with a new revision, and gives nothing of it to an old one', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    const reused = async (revision: number) => (await client.send(url, { revision })).reusedSocket;
    expect([
      await reused(1),
      await reused(1),
      await reused(2),
      await reused(2),
      await reused(1),
      await reused(2),
    ]).toEqual([false, true, false, true, false, true]);
  });

  test('disappears with its last socket', async () => {
    await using receiver = await receive(
      answer('HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'),
    );
    await using client = testEgress();
    await client.send(`http://127.0.0.1:${receiver.port}/`);
    await receiver.allClosed();
    await expect
      .poll(() => client.egress.stats())
      .toMatchObject({ pools: 0, openSockets: 0, idleSockets: 0 });
  });

  test('keeps few idle sockets of endpoints that are posted to once', async () => {
    await using receiver = await receive(answer(OK), '0.0.0.0');
    await using client = testEgress();
    for (let batch = 0; batch < 10; batch++) {
      const posts = Array.from({ length: 50 }, (_, i) =>
        client.send(`http://127.1.${batch}.${i + 1}:${receiver.port}/`, { endpoint: `ep_${batch}_${i}` }),
      );
      await Promise.all(posts);
    }
    expect(client.egress.stats().idleSockets).toBeLessThanOrEqual(128);
  });

  test('shares the budget of sockets with all others, and everybody gets through', async () => {
    await using receiver = await receive(answer(OK), '0.0.0.0');
    await using client = testEgress({ maxSockets: 10 });
    let most = 0;
    const posts = Array.from({ length: 200 }, async (_, i) => {
      const result = await client.send(`http://127.1.1.${i + 1}:${receiver.port}/`, { endpoint: `ep_${i}` });
      most = Math.max(most, client.egress.stats().openSockets);
      return result.class;
    });
    expect(new Set(await Promise.all(posts))).toEqual(new Set(['ok']));
    expect(most).toBeLessThanOrEqual(10);
  });
});

describe('a kept connection that dies under a request', () => {
  test('is replaced at once, in the same attempt', async () => {
    await using receiver = await onSecond((socket) => socket.resetAndDestroy());
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    await client.send(url);
    expect(await client.send(url)).toMatchObject({
      class: 'ok',
      reusedSocket: false,
      freshRetry: true,
      written: true,
    });
    expect(receiver.requests).toHaveLength(3);
    expect(client.egress.stats().freshRetries).toBe(1);
  });

  test('is not replaced when a byte of the response had come', async () => {
    await using receiver = await onSecond((socket) => socket.write('HTTP/1.1 2', () => socket.destroySoon()));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    await client.send(url);
    expect(await client.send(url)).toMatchObject({ class: 'reset', phase: 'headers', freshRetry: false });
    expect(receiver.requests).toHaveLength(2);
  });

  test('is replaced once only', async () => {
    let connection = 0;
    await using receiver = await onConnect((socket) => {
      const first = connection++ === 0;
      let requests = 0;
      socket.on('data', () => {
        if (first && requests++ === 0) socket.write(OK);
        else socket.resetAndDestroy();
      });
    });
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    await client.send(url);
    expect(await client.send(url)).toMatchObject({ class: 'reset', freshRetry: true, reusedSocket: false });
    expect(receiver.connections()).toBe(2);
  });

  test('costs nothing when it had closed before the request was written', async () => {
    await using receiver = await receive((socket) =>
      socket.write(OK, () => setTimeout(() => socket.end(), 1)),
    );
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    for (let i = 0; i < 200; i++) expect(await client.send(url)).toMatchObject({ class: 'ok' });
  });

  test('is not replaced after the time to start has passed', async () => {
    await using receiver = await onSecond((socket) => setTimeout(() => socket.resetAndDestroy(), 80));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    await client.send(url);
    const result = await client.send(url, { startBefore: performance.now() + 50 });
    expect(result).toMatchObject({ class: 'reset_reused', written: true });
    expect(receiver.requests).toHaveLength(2);
  });
});

describe('nothing is written', () => {
  test('after startBefore, not even to a warm connection', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    const late = { startBefore: performance.now() - 1 };
    expect(await client.send(url, late)).toMatchObject({ class: 'not_started', written: false });
    await client.send(url);
    expect(await client.send(url, late)).toMatchObject({ class: 'not_started', written: false });
    expect(receiver.requests).toHaveLength(1);
  });

  test('by a post that waits longer for a connection than its deadline', async () => {
    await using receiver = await onConnect(() => {});
    await using client = testEgress();
    const url = `http://127.0.0.1:${receiver.port}/`;
    const first = client.send(url, { connections: 1, timeoutMs: 600 });
    const second = await client.send(url, { connections: 1, timeoutMs: 100 });
    expect(second).toMatchObject({ class: 'queue_timeout', phase: 'queued', written: false });
    expect(await first).toMatchObject({ class: 'deadline', phase: 'sent' });
    expect(receiver.connections()).toBe(1);
  });
});

describe('an abort', () => {
  test('ends every post of the signal at once', async () => {
    await using receiver = await onConnect(() => {});
    await using client = testEgress();
    const controller = new AbortController();
    const url = `http://127.0.0.1:${receiver.port}/`;
    const posts = Array.from({ length: 20 }, () =>
      client.send(url, { signal: controller.signal, connections: 3 }),
    );
    setTimeout(() => controller.abort(), 50);
    const started = performance.now();
    for (const result of await Promise.all(posts)) expect(result.class).toBe('cancelled');
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(await client.send(url, { signal: controller.signal })).toMatchObject({
      class: 'cancelled',
      written: false,
    });
    await receiver.allClosed();
    expect(receiver.connections()).toBeLessThanOrEqual(3);
  });

  test('after the status line keeps the outcome', async () => {
    await using receiver = await receive((socket) =>
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok'),
    );
    await using client = testEgress();
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`, { signal: controller.signal });
    expect(result).toMatchObject({ class: 'ok', responseTruncated: true });
  });
});

test('close ends running posts and leaves no socket', async () => {
  await using silent = await onConnect(() => {});
  await using good = await receive(answer(OK));
  const client = testEgress();
  await client.send(`http://127.0.0.1:${good.port}/`);
  const running = client.send(`http://127.0.0.1:${silent.port}/`, { endpoint: 'ep_silent' });
  await expect.poll(() => silent.connections()).toBe(1);
  await client.egress.close();
  expect(await running).toMatchObject({ class: 'cancelled' });
  await Promise.all([silent.allClosed(), good.allClosed()]);
  expect(await client.send(`http://127.0.0.1:${good.port}/`)).toMatchObject({ class: 'cancelled' });
  await expect.poll(() => client.egress.stats()).toMatchObject({ pools: 0, openSockets: 0, queued: 0 });
});
