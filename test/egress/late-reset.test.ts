import { expect, test } from 'vitest';
import { testEgress } from '../support/hostile/egress.ts';
import { OK, receive } from '../support/hostile/listen.ts';

test('a reused socket that dies while the receiver was at work is a reset, and nothing is sent twice', async () => {
  await using receiver = await receive((socket, _request, nth) => {
    if (nth === 0) socket.write(OK);
    else setTimeout(() => socket.resetAndDestroy(), 700);
  });
  await using client = testEgress();
  const url = `http://127.0.0.1:${receiver.port}/`;
  expect(await client.send(url)).toMatchObject({ class: 'ok' });
  const second = await client.send(url);
  expect(second).toMatchObject({ class: 'reset', reusedSocket: true, freshRetry: false, written: true });
  expect(receiver.requests).toHaveLength(2);
});
