/** Names: what is asked, what is dialled, what is refused. A name server of our own answers. */
import { createHook } from 'node:async_hooks';
import { Agent, getGlobalDispatcher, setGlobalDispatcher } from 'undici';
import { describe, expect, test } from 'vitest';
import { parseEgressAllow } from '../../src/domain/addresses.ts';
import { startNameServer, type Zone } from '../support/hostile/dns.ts';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, onConnect, receive } from '../support/hostile/listen.ts';

const MAPPED_LOOPBACK = '00000000000000000000ffff7f000001';
const V6_PUBLIC = '26064700470000000000000000001111';

/** One post to hooks.example.com, answered by the zone, with a receiver on loopback. */
async function resolved(zone: Zone, timeoutMs = 4_000) {
  await using receiver = await receive(answer(OK));
  await using names = await startNameServer({ 'hooks.example.com': zone });
  await using client = testEgress({ dnsServers: [names.address] });
  const result = await client.send(`http://hooks.example.com:${receiver.port}/`, { timeoutMs });
  return { result, connections: receiver.connections(), queries: names.queries };
}

describe('a name', () => {
  test('is resolved over A and AAAA, once', async () => {
    const { result, queries } = await resolved({ a: ['127.0.0.1'] });
    expect(result).toMatchObject({ class: 'ok' });
    expect(result.timings.dnsMs).toBeGreaterThan(0);
    expect(queries.sort()).toEqual(['A hooks.example.com', 'AAAA hooks.example.com']);
  });

  test.each([
    ['a private address', { a: ['10.0.0.5'] }],
    ['a metadata address', { a: ['169.254.169.254'] }],
    ['an allowed and a private address', { a: ['127.0.0.1', '10.0.0.5'] }],
    ['a private and an allowed address', { a: ['10.0.0.5', '127.0.0.1'] }],
    ['an allowed A and a mapped AAAA', { a: ['127.0.0.1'], aaaa: [MAPPED_LOOPBACK] }],
    ['an allowed A and a public AAAA, when only exceptions will do', { a: ['127.0.0.1'], aaaa: [V6_PUBLIC] }],
    ['the null address', { a: ['0.0.0.0'] }],
  ] as const)('with %s is refused, and nothing is dialled', async (_name, zone) => {
    const { result, connections } = await resolved(zone);
    expect(result).toMatchObject({ class: 'blocked_address', phase: 'dns', written: false });
    expect(connections).toBe(0);
  });

  test('is refused in the same words whatever it leads to', async () => {
    const errors = new Set<string | null>();
    for (const a of ['10.0.0.5', '169.254.169.254', '192.168.1.1'])
      errors.add((await resolved({ a: [a] })).result.error);
    expect(errors.size).toBe(1);
  });

  test.each([
    [3, 'dns_not_found'],
    [2, 'dns_temporary'],
    [5, 'dns_temporary'],
  ] as const)('answered with code %i is %s', async (rcode, expected) => {
    const { result } = await resolved({ rcode });
    expect(result).toMatchObject({ class: expected, phase: 'dns', written: false });
  });

  test('without any address is not found', async () => {
    expect((await resolved({})).result).toMatchObject({ class: 'dns_not_found' });
  });

  test('whose servers are silent ends before a long deadline', async () => {
    const { result } = await resolved({ silent: true }, 10_000);
    expect(result).toMatchObject({ class: 'dns_temporary', phase: 'dns' });
    expect(result.durationMs).toBeLessThan(3_500);
  });

  test('whose servers are silent ends with a short deadline', async () => {
    const { result } = await resolved({ silent: true }, 200);
    expect(result).toMatchObject({ class: 'dns_temporary', phase: 'dns', written: false });
    expect(result.timings.dnsMs).toBeGreaterThan(150);
    expect(result.durationMs).toBeLessThan(800);
  });

  test('whose AAAA answer is late goes by its A answer', async () => {
    const { result } = await resolved({ a: ['127.0.0.1'], silentAaaa: true });
    expect(result).toMatchObject({ class: 'ok' });
    expect(result.timings.dnsMs).toBeLessThan(1_500);
  });

  test('with one dead address of two is reached at the other', async () => {
    await using receiver = await receive(answer(OK), '127.0.0.3');
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.2', '127.0.0.3'] } });
    await using client = testEgress({ dnsServers: [names.address] });
    expect(await client.send(`http://hooks.example.com:${receiver.port}/`)).toMatchObject({ class: 'ok' });
  });

  test('with only refusing addresses is connect_refused', async () => {
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.2', '127.0.0.3'] } });
    await using client = testEgress({ dnsServers: [names.address] });
    expect(await client.send('http://hooks.example.com:1/')).toMatchObject({
      class: 'connect_refused',
      phase: 'tcp',
    });
  });
});

test('no lookup goes through the thread pool of the process', async () => {
  const started: string[] = [];
  const hook = createHook({ init: (_id, type) => started.push(type) }).enable();
  try {
    expect((await resolved({ a: ['127.0.0.1'] })).result).toMatchObject({ class: 'ok' });
  } finally {
    hook.disable();
  }
  expect(started).toContain('QUERYWRAP');
  expect(started).not.toContain('GETADDRINFOREQWRAP');
});

describe('the cache', () => {
  test('asks once for many posts at the same moment', async () => {
    await using receiver = await receive(answer(OK));
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'], ttl: 60 } });
    await using client = testEgress({ dnsServers: [names.address] });
    const url = `http://hooks.example.com:${receiver.port}/`;
    await Promise.all(Array.from({ length: 50 }, (_, i) => client.send(url, { endpoint: `ep_${i}` })));
    await client.send(url, { endpoint: 'later' });
    expect(names.queries).toHaveLength(2);
  });

  test('never outlives the TTL: a name that turns private is refused on the next dial', async () => {
    await using receiver = await receive(
      answer('HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'),
    );
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'] } });
    await using client = testEgress({ dnsServers: [names.address] });
    const url = `http://hooks.example.com:${receiver.port}/`;
    expect(await client.send(url)).toMatchObject({ class: 'ok' });
    names.zones.set('hooks.example.com', { a: ['10.0.0.5'] });
    expect(await client.send(url)).toMatchObject({ class: 'blocked_address' });
    names.zones.set('hooks.example.com', { a: ['127.0.0.1'] });
    expect(await client.send(url)).toMatchObject({ class: 'ok' });
  });
});

describe('a literal', () => {
  test('that is not allowed never reaches a socket', async () => {
    await using receiver = await onConnect(() => {});
    await using client = testEgress({ allow: parseEgressAllow('127.0.0.2/32:*') });
    const result = await client.send(`http://127.0.0.1:${receiver.port}/`);
    expect(result).toMatchObject({ class: 'invalid_url', phase: 'policy', written: false });
    expect(await client.send('https://[::1]/')).toMatchObject({ class: 'invalid_url' });
    expect(await client.send('https://169.254.169.254/')).toMatchObject({ class: 'invalid_url' });
    expect(receiver.connections()).toBe(0);
  });

  test('asks no name server', async () => {
    await using receiver = await receive(answer(OK));
    await using names = await startNameServer();
    await using client = testEgress({ dnsServers: [names.address] });
    await client.send(`http://127.0.0.1:${receiver.port}/`);
    expect(names.queries).toEqual([]);
  });
});

describe('localhost', () => {
  test('is loopback without a query, and needs an exception', async () => {
    await using receiver = await receive(answer(OK));
    await using names = await startNameServer({ localhost: { a: ['10.0.0.1'] } });
    await using client = testEgress({ dnsServers: [names.address] });
    expect(await client.send(`http://localhost:${receiver.port}/`)).toMatchObject({ class: 'ok' });
    await using strict = testEgress({ allow: parseEgressAllow('10.0.0.0/8:*'), dnsServers: [names.address] });
    expect(await strict.send(`http://localhost:${receiver.port}/`)).toMatchObject({
      class: 'blocked_address',
    });
    expect(names.queries).toEqual([]);
  });
});

describe('an address of this machine', () => {
  test('is refused even if it is public', async () => {
    await using names = await startNameServer({ 'hooks.example.com': { a: ['93.184.215.14'] } });
    await using client = testEgress({ dnsServers: [names.address], ownAddresses: ['93.184.215.14'] });
    expect(await client.send('https://hooks.example.com/')).toMatchObject({
      class: 'blocked_address',
      written: false,
    });
  });
});

describe('the surroundings have no effect', () => {
  test('neither a global dispatcher nor proxy variables', async () => {
    await using receiver = await receive(answer(OK));
    const before = getGlobalDispatcher();
    const trap = new Agent({
      connect: () => {
        throw new Error('the global dispatcher was used');
      },
    });
    setGlobalDispatcher(trap);
    process.env.HTTP_PROXY = process.env.HTTPS_PROXY = 'http://127.0.0.1:1';
    process.env.NODE_USE_ENV_PROXY = '1';
    try {
      await using client = testEgress();
      expect(await client.send(`http://127.0.0.1:${receiver.port}/`)).toMatchObject({ class: 'ok' });
    } finally {
      setGlobalDispatcher(before);
      for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'NODE_USE_ENV_PROXY']) delete process.env[name];
    }
  });
});
