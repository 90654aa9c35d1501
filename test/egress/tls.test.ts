/** Every TLS fault by name, client certificates, CA bundles, and that nothing switches verification off. */
import type { TLSSocket, TlsOptions } from 'node:tls';
import { describe, expect, test } from 'vitest';
import type { OutcomeClass } from '../../src/domain/classes.ts';
import type { TlsProfile } from '../../src/egress/tls.ts';
import { TlsProfileError, tlsProfile } from '../../src/egress/tls.ts';
import { type Identity, makeCertificate } from '../support/hostile/certificates.ts';
import { startNameServer } from '../support/hostile/dns.ts';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, onConnect, receive, receiveTls } from '../support/hostile/listen.ts';

const root = makeCertificate({ name: 'Root', authority: true });
const middle = makeCertificate({ name: 'Intermediate', issuer: root, authority: true });
const hosts = ['hooks.example.com', '127.0.0.1'];
const leaf = makeCertificate({ name: 'leaf', issuer: middle, hosts });
const chain = `${leaf.cert}${middle.cert}`;
const profile = tlsProfile({ ca: root.cert }) as TlsProfile;
const client = makeCertificate({ name: 'client', issuer: root });
const clientProfile = tlsProfile({ ca: root.cert, cert: client.cert, key: client.key }) as TlsProfile;

/** Posts once to a TLS server with these options; the name resolves to loopback. */
async function attempt(options: TlsOptions, tls: TlsProfile | undefined = profile, path = '/') {
  await using receiver = await receiveTls(options, answer(OK));
  await using names = await startNameServer({ 'hooks.example.com': { a: ['127.0.0.1'] } });
  await using egress = testEgress({ dnsServers: [names.address] });
  return await egress.send(`https://hooks.example.com:${receiver.port}${path}`, { tls, timeoutMs: 3_000 });
}

const served = (identity: Identity, ...more: Identity[]): TlsOptions => ({
  key: identity.key,
  cert: [identity, ...more].map((one) => one.cert).join(''),
});

test('a complete chain to a root of the CA bundle is accepted', async () => {
  const result = await attempt({ key: leaf.key, cert: chain });
  expect(result).toMatchObject({ class: 'ok', written: true });
  expect(result.timings.tlsMs).toBeGreaterThan(0);
});

test('an address literal is verified too', async () => {
  await using receiver = await receiveTls({ key: leaf.key, cert: chain }, answer(OK));
  await using egress = testEgress();
  expect(await egress.send(`https://127.0.0.1:${receiver.port}/`, { tls: profile })).toMatchObject({
    class: 'ok',
  });
  const other = await egress.send(`https://127.0.0.2:${receiver.port}/`, { tls: profile });
  expect(other.class).toBe('connect_refused');
});

describe('a certificate that', () => {
  const rows: [string, OutcomeClass, TlsOptions, (TlsProfile | undefined)?][] = [
    [
      'has expired',
      'tls_expired',
      served(makeCertificate({ name: 'x', issuer: root, hosts, from: -9, until: -2 })),
    ],
    [
      'is not valid yet',
      'tls_not_yet_valid',
      served(makeCertificate({ name: 'x', issuer: root, hosts, from: 2 })),
    ],
    [
      'is for another name',
      'tls_wrong_name',
      served(makeCertificate({ name: 'x', issuer: root, hosts: ['other.example.com'] })),
    ],
    ['signs itself', 'tls_self_signed', served(makeCertificate({ name: 'hooks.example.com', hosts }))],
    ['has no intermediate', 'tls_missing_intermediate', served(leaf)],
    [
      'ends in an unknown root that is sent along',
      'tls_untrusted_root',
      served(leaf, middle, root),
      tlsProfile({ ca: makeCertificate({ name: 'Elsewhere', authority: true }).cert }),
    ],
  ];
  test.each(rows)('%s gives %s, and no byte is sent', async (_name, expected, options, tls) => {
    expect(await attempt(options, tls)).toMatchObject({ class: expected, phase: 'tls', written: false });
  });

  test('is unknown to the system roots is refused without a CA bundle', async () => {
    await using receiver = await receiveTls({ key: leaf.key, cert: chain }, answer(OK));
    await using egress = testEgress();
    const result = await egress.send(`https://127.0.0.1:${receiver.port}/`);
    expect(result).toMatchObject({ class: 'tls_missing_intermediate', written: false });
  });
});

describe('verification', () => {
  test('cannot be switched off by the environment', async () => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    try {
      const result = await attempt(served(makeCertificate({ name: 'hooks.example.com', hosts })));
      expect(result.class).toBe('tls_self_signed');
    } finally {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    }
  });
});

describe('a receiver that asks for a client certificate', () => {
  const options = {
    key: leaf.key,
    cert: chain,
    requestCert: true,
    rejectUnauthorized: true,
    ca: [root.cert],
  };

  test.each(['TLSv1.2', 'TLSv1.3'] as const)('is recognised over %s', async (version) => {
    const result = await attempt({ ...options, minVersion: version, maxVersion: version });
    expect(result.class).toBe('tls_client_certificate_required');
  });

  test.each(['TLSv1.2', 'TLSv1.3'] as const)('gets the one of the endpoint over %s', async (version) => {
    const result = await attempt({ ...options, minVersion: version, maxVersion: version }, clientProfile);
    expect(result).toMatchObject({ class: 'ok' });
  });

  test.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'and refuses the one of the endpoint is recognised over %s',
    async (version) => {
      const stranger = makeCertificate({ name: 'stranger' });
      const wrong = tlsProfile({ ca: root.cert, cert: stranger.cert, key: stranger.key }) as TlsProfile;
      const result = await attempt({ ...options, minVersion: version, maxVersion: version }, wrong);
      expect(result.class).toBe('tls_client_certificate_refused');
    },
  );

  test('never sees the certificate of another tenant', async () => {
    const seen: (string | undefined)[] = [];
    await using receiver = await receiveTls({ ...options, rejectUnauthorized: false }, (socket) => {
      const certificate = (socket as TLSSocket).getPeerCertificate();
      seen.push(certificate.subject?.CN?.toString());
      socket.write(OK);
    });
    await using egress = testEgress();
    const url = `https://127.0.0.1:${receiver.port}/`;
    await egress.send(url, { tenant: 'a', tls: clientProfile });
    await egress.send(url, { tenant: 'b', tls: profile });
    await egress.send(url, { tenant: 'a', tls: clientProfile });
    expect(seen).toEqual(['client', undefined, 'client']);
    expect(receiver.connections()).toBe(2);
  });
});

test('a session is resumed by the same endpoint and never by another', async () => {
  const resumed: boolean[] = [];
  await using receiver = await receiveTls({ key: leaf.key, cert: chain }, (socket) => {
    resumed.push((socket as TLSSocket).isSessionReused());
    socket.end('HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
  });
  await using egress = testEgress();
  const url = `https://127.0.0.1:${receiver.port}/`;
  for (const tenant of ['a', 'a', 'b']) {
    expect(await egress.send(url, { tenant, tls: profile })).toMatchObject({ class: 'ok' });
    await receiver.allClosed();
  }
  expect(resumed).toEqual([false, true, false]);
});

describe('a port that', () => {
  test('speaks plain HTTP is recognised', async () => {
    await using receiver = await onConnect((socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await using egress = testEgress();
    expect(await egress.send(`https://127.0.0.1:${receiver.port}/`)).toMatchObject({
      class: 'tls_not_tls',
      written: false,
    });
  });

  test('speaks only TLS 1.1 is recognised', async () => {
    // A server whose versions do not overlap with ours answers with the alert protocol_version (70).
    await using receiver = await onConnect((socket) => socket.end(Buffer.from([0x15, 3, 2, 0, 2, 2, 70])));
    await using egress = testEgress();
    expect(await egress.send(`https://127.0.0.1:${receiver.port}/`)).toMatchObject({ class: 'tls_version' });
  });

  test('accepts and stays silent ends with the time for connecting', async () => {
    await using receiver = await onConnect(() => {});
    await using egress = testEgress({ connectTimeoutMs: 200 });
    const result = await egress.send(`https://127.0.0.1:${receiver.port}/`);
    expect(result).toMatchObject({ class: 'tls_timeout', phase: 'tls', written: false });
    await receiver.allClosed();
  });

  test('accepts and stays silent ends with the deadline, if that is earlier', async () => {
    await using receiver = await onConnect(() => {});
    await using egress = testEgress();
    const result = await egress.send(`https://127.0.0.1:${receiver.port}/`, { timeoutMs: 150 });
    expect(result).toMatchObject({ class: 'deadline', phase: 'tls', written: false });
    await receiver.allClosed();
  });

  test('hangs up during the handshake is recognised', async () => {
    await using receiver = await receive(() => {});
    await using hangup = await onConnect((socket) => socket.once('data', () => socket.resetAndDestroy()));
    await using egress = testEgress();
    expect(receiver.connections()).toBe(0);
    expect(await egress.send(`https://127.0.0.1:${hangup.port}/`)).toMatchObject({
      class: 'tls_handshake',
      phase: 'tls',
    });
  });
});

describe('a profile', () => {
  test('is named by its content', () => {
    expect(tlsProfile({ ca: root.cert })?.id).toBe(profile.id);
    expect(clientProfile.id).not.toBe(profile.id);
    expect(tlsProfile({})).toBeUndefined();
  });

  test.each([
    [{ ca: 'nonsense' }, 'ca_bundle'],
    [{ ca: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----' }, 'ca_bundle'],
    [{ cert: client.cert }, 'client_key'],
    [{ key: client.key }, 'client_certificate'],
    [{ cert: client.cert, key: leaf.key }, 'client_key'],
    [{ cert: client.cert, key: 'nonsense' }, 'client_key'],
  ] as const)('that cannot be used is refused: %#', (parts, field) => {
    try {
      tlsProfile(parts);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(TlsProfileError);
      expect((error as TlsProfileError).field).toBe(field);
    }
  });
});
