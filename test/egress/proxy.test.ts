/** The CONNECT proxy: its faults are ours, its findings are the receiver's. */
import { describe, expect, test } from 'vitest';
import { OUTCOME_CLASSES, type OutcomeClass } from '../../src/domain/classes.ts';
import { parseProxy } from '../../src/egress/proxy.ts';
import { type TlsProfile, tlsProfile } from '../../src/egress/tls.ts';
import { makeCertificate } from '../support/hostile/certificates.ts';
import { startNameServer } from '../support/hostile/dns.ts';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, receive, receiveTls } from '../support/hostile/listen.ts';
import { type ProxyManner, startProxy } from '../support/hostile/proxy.ts';

const refusal = (status: string, reason = ''): ProxyManner => ({
  answer: `HTTP/1.1 ${status}\r\n${reason ? `X-Smokescreen-Error: ${reason}\r\n` : ''}content-length: 0\r\n\r\n`,
});

/** One post through a proxy of this manner. */
async function through(manner: ProxyManner, timeoutMs = 3_000) {
  await using receiver = await receive(answer(OK));
  await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'] } });
  await using proxy = await startProxy(() => manner);
  await using client = testEgress({ proxy: `http://127.0.0.1:${proxy.port}`, dnsServers: [names.address] });
  const result = await client.send(`http://hooks.example.com:${receiver.port}/`, { timeoutMs });
  return { result, connections: receiver.connections(), heads: proxy.heads, port: receiver.port };
}

describe('a working proxy', () => {
  test('is asked for the name and carries the request', async () => {
    const { result, heads, port } = await through('tunnel');
    expect(result).toMatchObject({ class: 'ok', written: true });
    expect(heads).toEqual([
      `CONNECT hooks.example.com:${port} HTTP/1.1\r\nhost: hooks.example.com:${port}\r\n\r\n`,
    ]);
  });

  test('gets its credentials, and the judged address if that is wanted', async () => {
    await using receiver = await receive(answer(OK));
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'] } });
    await using proxy = await startProxy(() => 'tunnel');
    await using client = testEgress({
      proxy: `http://us:p%40ss@127.0.0.1:${proxy.port}/?connect=address`,
      dnsServers: [names.address],
    });
    expect(await client.send(`http://hooks.example.com:${receiver.port}/`)).toMatchObject({ class: 'ok' });
    expect(proxy.heads[0]).toContain(`CONNECT 127.0.0.1:${receiver.port} `);
    expect(proxy.heads[0]).toContain(`proxy-authorization: Basic ${btoa('us:p@ss')}`);
    expect(receiver.requests[0]).toContain('host: hooks.example.com');
    expect(receiver.requests[0]).not.toContain('proxy-');
  });

  test('carries TLS end to end, and connections through it are reused', async () => {
    const authority = makeCertificate({ name: 'Root', authority: true });
    const leaf = makeCertificate({ name: 'leaf', issuer: authority, hosts: ['hooks.example.com'] });
    const tls = tlsProfile({ ca: authority.cert }) as TlsProfile;
    await using receiver = await receiveTls({ key: leaf.key, cert: leaf.cert }, answer(OK));
    await using proxy = await startProxy(() => 'tunnel');
    await using names = await startNameServer({ 'hooks.example.com': { rcode: 2 } });
    await using client = testEgress({ proxy: `http://127.0.0.1:${proxy.port}`, dnsServers: [names.address] });
    const url = `https://hooks.example.com:${receiver.port}/`;
    expect(await client.send(url, { tls })).toMatchObject({ class: 'ok' });
    expect(await client.send(url, { tls })).toMatchObject({ class: 'ok', reusedSocket: true });
    expect(proxy.heads).toHaveLength(1);
  });

  test('is not asked for a name that we know to be private', async () => {
    await using names = await startNameServer({ 'hooks.example.com': { a: ['10.0.0.5'] } });
    await using proxy = await startProxy(() => 'tunnel');
    await using client = testEgress({ proxy: `http://127.0.0.1:${proxy.port}`, dnsServers: [names.address] });
    expect(await client.send('https://hooks.example.com/')).toMatchObject({ class: 'blocked_address' });
    expect(proxy.heads).toEqual([]);
  });
});

describe('a proxy that', () => {
  test.each([
    ['denies the address', refusal('407 Request rejected', 'host not allowed'), 'blocked_address'],
    ['wants credentials', refusal('407 Proxy Authentication Required'), 'proxy_refused'],
    [
      'finds no such host',
      refusal('502 Bad gateway', 'lookup hooks.example.com: no such host'),
      'dns_not_found',
    ],
    ['is refused by the receiver', refusal('502 Bad gateway', 'connection refused'), 'connect_refused'],
    ['fails to reach the receiver', refusal('502 Bad gateway'), 'proxy_upstream'],
    ['waited too long for the receiver', refusal('504 Gateway timeout'), 'connect_timeout'],
    ['has too many tunnels', refusal('429 Too many'), 'proxy_unavailable'],
    ['is overloaded', refusal('503 Unavailable'), 'proxy_unavailable'],
    ['answers nonsense', { answer: 'SSH-2.0-OpenSSH\r\n\r\n' }, 'proxy_unavailable'],
    ['answers without end', { answer: `HTTP/1.1 200 OK\r\nx: ${'x'.repeat(20_000)}` }, 'proxy_unavailable'],
    ['closes without an answer', 'close', 'proxy_unavailable'],
  ] as [string, ProxyManner, OutcomeClass][])('%s gives the right class', async (_name, manner, expected) => {
    const { result, connections } = await through(manner);
    expect(result).toMatchObject({ class: expected, phase: 'proxy', written: false });
    expect(connections).toBe(0);
  });

  test('stays silent is a fault of ours', async () => {
    const { result } = await through('silent', 300);
    expect(result).toMatchObject({ class: 'proxy_unavailable', phase: 'proxy', written: false });
    expect(result.durationMs).toBeLessThan(1_000);
  });

  test('is dead burns no attempt and trips no breaker', async () => {
    await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'] } });
    await using client = testEgress({ proxy: 'http://127.0.0.1:1', dnsServers: [names.address] });
    const result = await client.send('http://hooks.example.com:9000/');
    expect(result).toMatchObject({ class: 'proxy_unavailable', written: false });
    expect(OUTCOME_CLASSES[result.class]).toMatchObject({ burnsAttempt: false, health: 'neutral' });
  });
});

describe('EGRESS_PROXY', () => {
  test('is parsed with defaults', () => {
    expect(parseProxy('http://proxy.example.net:4750')).toMatchObject({
      host: 'proxy.example.net',
      port: 4750,
      secure: false,
    });
    expect(parseProxy('https://[2001:db8::1]')).toMatchObject({
      host: '2001:db8::1',
      port: 443,
      secure: true,
    });
  });

  test.each(['proxy:4750', 'socks5://proxy:1080', 'http://proxy/path', ''])(
    '%j is refused with the right form',
    (text) => {
      expect(() => parseProxy(text)).toThrow('http://smokescreen.example.net:4750');
    },
  );
});
