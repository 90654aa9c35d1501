/** A process that could not run for a while (stopped, paused, starved) does not hold that against the receiver. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { settled } from '../../src/egress/connect.ts';
import { PeerTimer } from '../../src/egress/timers.ts';
import { testEgress } from '../support/hostile/egress.ts';

/** In a thread of its own, since ours stands still: answers /answers after 100 ms, anything else never. */
const RECEIVER = `
  const { createServer } = require('node:net');
  const { parentPort } = require('node:worker_threads');
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      if (chunk.includes('POST /answers'))
        setTimeout(() => socket.write('HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n'), 100);
      if (chunk.includes('POST /')) parentPort.postMessage('asked');
    });
  });
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;
let receiver: Worker;
let origin: string;
beforeAll(async () => {
  receiver = new Worker(RECEIVER, { eval: true });
  const [port] = await once(receiver, 'message');
  origin = `http://127.0.0.1:${port}`;
});
afterAll(() => receiver.terminate());

const freeze = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
};

test('an answer that came in time counts, though it is only read after the deadline', async () => {
  await using client = testEgress();
  const asked = once(receiver, 'message');
  const sent = client.send(`${origin}/answers`, { timeoutMs: 1_000 });
  await asked;
  freeze(2_500);
  expect(await sent).toMatchObject({ class: 'ok' });
});

test('silence through a freeze is a fault of ours: the receiver may have answered for all we know', async () => {
  await using client = testEgress();
  const asked = once(receiver, 'message');
  const sent = client.send(`${origin}/hangs`, { timeoutMs: 1_000 });
  await asked;
  freeze(2_500);
  expect(await sent).toMatchObject({ class: 'stalled', phase: 'sent', written: true });
});

test('silence without a freeze is the receiver’s', async () => {
  await using client = testEgress();
  expect(await client.send(`${origin}/hangs`, { timeoutMs: 300 })).toMatchObject({ class: 'deadline' });
});

test('a connection that was made during a freeze is used', async () => {
  const socket = connect(Number(new URL(origin).port), '127.0.0.1');
  const connected = settled(socket, 'connect', 100, 'LATE');
  freeze(1_500);
  await connected;
  socket.destroy();
});

test('after a freeze the peer has its whole time once more, and then no longer', async () => {
  const began = performance.now();
  const late = new Promise<number>((resolve) => {
    new PeerTimer(200, () => resolve(performance.now() - began));
  });
  freeze(1_500);
  expect(await late).toBeGreaterThan(1_690);
});
