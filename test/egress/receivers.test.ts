/**
 * Receivers that misbehave, one by one, on real sockets. Each must give one result of the right class within its
 * deadline, and must not harm the next delivery to a good receiver.
 */
import { describe, expect, test } from 'vitest';
import { fullBacklog } from '../support/hostile/backlog.ts';
import { startNameServer } from '../support/hostile/dns.ts';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, onConnect, receive } from '../support/hostile/listen.ts';
import { HOSTILE_RECEIVERS, reset } from '../support/hostile/receivers.ts';

const DEADLINE_MS = 400;
/** For a loaded machine. */
const SLACK_MS = 600;

describe('a receiver that', () => {
  test.each(HOSTILE_RECEIVERS)('$name gives one result of class $class, in time', async (row) => {
    await using bad = await row.receiver();
    await using good = await receive(answer(OK));
    await using client = testEgress();
    const started = performance.now();
    const result = await client.send(`http://127.0.0.1:${bad.port}/hook`, { timeoutMs: DEADLINE_MS });
    expect(performance.now() - started).toBeLessThan(DEADLINE_MS + SLACK_MS);
    expect(result).toMatchObject({
      class: row.class,
      phase: row.phase,
      written: true,
      status: row.status ?? null,
    });
    expect(bad.connections()).toBe(1);
    if (row.text !== undefined) expect(result.responseBodyText).toMatch(row.text);
    if (row.truncated !== undefined) expect(result.responseTruncated).toBe(row.truncated);
    expect(result.responseBody.length).toBeLessThanOrEqual(16 * 1024);
    expect(result.error ?? '').not.toMatch(/127\.0|169\.254/);

    const next = await client.send(`http://127.0.0.1:${good.port}/hook`, { endpoint: 'ep_good' });
    expect(next).toMatchObject({ class: 'ok', responseBodyText: 'ok' });
    await client.egress.close();
    await bad.allClosed();
  });
});

test('a receiver that resets as soon as somebody connects gives one result, before or after the request', async () => {
  await using bad = await onConnect(reset);
  await using client = testEgress();
  const result = await client.send(`http://127.0.0.1:${bad.port}/`);
  expect(['connect_reset', 'reset']).toContain(result.class);
  expect(result.written).toBe(result.class === 'reset');
  expect(bad.connections()).toBe(1);
});

test('a receiver whose queue of connections is full ends with the time for connecting', async () => {
  await using full = await fullBacklog('127.0.0.1');
  await using client = testEgress({ connectTimeoutMs: 300 });
  const result = await client.send(`http://127.0.0.1:${full.port}/`);
  expect(result).toMatchObject({ class: 'connect_timeout', phase: 'tcp', written: false });
  expect(result.durationMs).toBeLessThan(1_000);
});

test('a receiver with a silent address and a good one is reached at the good one', async () => {
  await using full = await fullBacklog('127.0.0.2');
  await using good = await receive(answer(OK), '127.0.0.3', full.port);
  await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.2', '127.0.0.3'] } });
  await using client = testEgress({ dnsServers: [names.address] });
  expect(await client.send(`http://hooks.example.com:${good.port}/`)).toMatchObject({ class: 'ok' });
  expect(good.requests).toHaveLength(1);
});

test('a receiver that answers before it has read a large body gives its status', async () => {
  await using early = await onConnect((socket) => {
    socket.once('data', () => {
      socket.pause();
      socket.write('HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n');
    });
  });
  await using client = testEgress();
  const url = `http://127.0.0.1:${early.port}/`;
  for (let i = 0; i < 2; i++) {
    const result = await client.send(url, { body: Buffer.alloc(20_000_000) });
    expect(result).toMatchObject({ class: 'http_4xx', status: 413, reusedSocket: false });
  }
});

describe('the response', () => {
  test('is stored with every header, repeated ones included', async () => {
    await using receiver = await receive(
      answer('HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n'),
    );
    await using client = testEgress();
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`);
    expect(result).toMatchObject({ class: 'http_429', retryAfter: '7' });
    expect(result.responseHeaders).toEqual([
      ['retry-after', '7'],
      ['x-a', '1'],
      ['x-a', '2'],
      ['content-length', '0'],
    ]);
  });

  test('is cut at a character', async () => {
    const body = Buffer.from(`${'x'.repeat(16 * 1024 - 2)}€ and more`);
    await using receiver = await receive(
      answer(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`, body),
    );
    await using client = testEgress();
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`);
    expect(result.responseBody.length).toBe(16 * 1024);
    expect(result.responseBodyText).toBe('x'.repeat(16 * 1024 - 2));
    expect(result.responseTruncated).toBe(true);
  });

  test('up to 64 KiB leaves the connection usable', async () => {
    const body = Buffer.alloc(64 * 1024, 'x');
    await using receiver = await receive(
      answer(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`, body),
    );
    await using client = testEgress();
    for (let i = 0; i < 3; i++) {
      expect(await client.send(`http://127.0.0.1:${receiver.port}/`)).toMatchObject({
        class: 'ok',
        reusedSocket: i > 0,
      });
    }
    expect(receiver.connections()).toBe(1);
  });

  test('names the size of our head when the receiver may have stumbled over it', async () => {
    await using receiver = await receive(answer('HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n'));
    await using client = testEgress();
    const headers = [['x-large', 'x'.repeat(5000)]] as const;
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`, { headers });
    expect(result.error).toContain(`${result.headBytes} bytes`);
  });
});

describe('the request', () => {
  test('has the given head in order, and the exact body', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const body = Buffer.from('{"n": 12345678901234567890}');
    const result = await client.send(`http://127.0.0.1:${receiver.port}/in?x=1`, { body });
    const head = [
      'POST /in?x=1 HTTP/1.1',
      `host: 127.0.0.1:${receiver.port}`,
      'connection: keep-alive',
      'user-agent: Posthaste',
      'content-type: application/json',
      'webhook-id: evt_1',
      `content-length: ${body.length}`,
    ];
    expect(receiver.requests).toEqual([`${head.join('\r\n')}\r\n\r\n${body}`]);
    expect(result.headBytes).toBe(head.join('\r\n').length + 4);
  });

  test('that cannot be written is refused, and the next one is unharmed', async () => {
    await using receiver = await receive(answer(OK));
    await using client = testEgress();
    const headers = [['x-bad', 'a\r\nb: c']] as const;
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`, { headers });
    expect(result).toMatchObject({ class: 'invalid_request', written: false });
    expect(await client.send(`http://127.0.0.1:${receiver.port}/`)).toMatchObject({ class: 'ok' });
    expect(receiver.requests).toHaveLength(1);
  });
});
