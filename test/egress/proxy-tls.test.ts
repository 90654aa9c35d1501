/** An https:// proxy: its certificate is always checked, and TLS to it carries TLS or plain HTTP to the receiver. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { makeCertificate } from '../support/hostile/certificates.ts';
import { testEgress } from '../support/hostile/egress.ts';
import { answer, OK, receive } from '../support/hostile/listen.ts';

const authority = makeCertificate({ name: 'Root', authority: true });
const leaf = makeCertificate({ name: 'proxy', issuer: authority, hosts: ['localhost'] });

/** Tunnels every CONNECT to its port on loopback. */
async function startTlsProxy(): Promise<{ port: number; heads: string[] } & AsyncDisposable> {
  const heads: string[] = [];
  const sockets = new Set<TLSSocket>();
  const server = createServer({ key: leaf.key, cert: leaf.cert }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('data', (head) => {
      heads.push(head.toString('latin1'));
      const port = Number(/^CONNECT \S+:(\d+) /.exec(heads.at(-1)!)?.[1]);
      const upstream = connect(port, '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
        socket.pipe(upstream).pipe(socket);
      });
      upstream.on('error', () => socket.destroy());
    });
  });
  server.on('tlsClientError', () => {});
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as { port: number }).port,
    heads,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

test('a proxy with a certificate nobody vouches for is a fault of ours, and nothing is sent through it', async () => {
  await using proxy = await startTlsProxy();
  await using receiver = await receive(answer(OK));
  await using client = testEgress({ proxy: `https://localhost:${proxy.port}` });
  const result = await client.send(`http://127.0.0.1:${receiver.port}/`);
  expect(result).toMatchObject({ class: 'proxy_unavailable', written: false });
  expect(proxy.heads).toEqual([]);
  expect(receiver.connections()).toBe(0);
});

test('a proxy that the system trusts carries the delivery', async () => {
  await using proxy = await startTlsProxy();
  await using receiver = await receive(answer(OK));
  const folder = await mkdtemp(join(tmpdir(), 'posthaste-test-'));
  const file = join(folder, 'root.pem');
  await writeFile(file, authority.cert);
  // The trusted roots are read when a process starts, so this one is asked in a process of its own.
  const script = `
    import { createEgress } from './src/egress/post.ts';
    import { parseEgressAllow } from './src/domain/addresses.ts';
    const egress = createEgress({ allow: parseEgressAllow('127.0.0.0/8:*'), proxy: 'https://localhost:${proxy.port}' });
    const result = await egress.post({ url: 'http://127.0.0.1:${receiver.port}/', tenant: 't', endpoint: 'ep', revision: 1,
      headers: [['content-type', 'text/plain']], body: Buffer.from('hi'), timeoutMs: 5000, connections: 1 });
    console.log(JSON.stringify({ class: result.class, status: result.status, error: result.error }));
    await egress.close();`;
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
      env: { ...process.env, NODE_EXTRA_CA_CERTS: file },
    });
    expect(JSON.parse(stdout)).toEqual({ class: 'ok', status: 200, error: null });
    expect(proxy.heads[0]).toContain(`CONNECT 127.0.0.1:${receiver.port} HTTP/1.1`);
    expect(receiver.requests).toHaveLength(1);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
