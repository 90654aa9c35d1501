/**
 * How many events a second the API takes: real sockets, a real PostgreSQL, the load in a process of its own.
 *
 *   DATABASE_URL=postgres://… node bench/intake.ts [--seconds 10] [--connections 64] [--bytes 1000] [--keyed] [--rate n]
 *
 * Starts the API in this process (on a migrated database), so that its CPU per event can be told; with --url and --key
 * it drives a running one instead. --keyed gives every event an own id. --rate paces the load, for latencies.
 */
import { fork } from 'node:child_process';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { listen } from '../src/api/listen.ts';
import { createApi, ensureAdminKey } from '../src/api/server.ts';
import { migrate } from '../src/db/migrate.ts';
import { createPool } from '../src/db/pool.ts';
import { createLog } from '../src/log.ts';
import { parseMasterKeys } from '../src/secrets.ts';

const { values: options } = parseArgs({
  options: {
    url: { type: 'string' },
    key: { type: 'string', default: 'bench-admin-key-0123456789' },
    seconds: { type: 'string', default: '10' },
    connections: { type: 'string', default: '64' },
    bytes: { type: 'string', default: '1000' },
    rate: { type: 'string' },
    keyed: { type: 'boolean', default: false },
    load: { type: 'boolean', default: false },
  },
});

interface Result {
  events: number;
  seconds: number;
  refused: number;
  p50: number;
  p99: number;
  max: number;
}

if (options.load) await load(options.url as string);
else await measure();

async function measure(): Promise<void> {
  let url = options.url;
  let close = async () => {};
  if (url === undefined) {
    const database = process.env.DATABASE_URL;
    if (database === undefined)
      throw new Error('Set DATABASE_URL, or give --url and --key of a running API.');
    await migrate(database);
    const db = createPool(database, { max: 10, applicationName: 'posthaste bench' });
    await ensureAdminKey(db, options.key);
    const log = createLog({ level: 'warn' });
    const masterKeys = parseMasterKeys(`b:${Buffer.alloc(32, 1).toString('base64')}`);
    const api = createApi({
      db,
      log,
      config: { egressAllow: { items: [] }, masterKeys, maxEventBytes: 262_144 },
      poke: () => {},
      readiness: async () => ({ ok: true, checks: {} }),
    });
    const listening = await listen(api, { host: '127.0.0.1', port: 0, log });
    url = listening.url;
    close = async () => {
      await listening.close();
      await db.end();
    };
  }
  const put = await fetch(`${url}/v1/tenants/bench`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${options.key}` },
  });
  if (!put.ok) throw new Error(`PUT /v1/tenants/bench: ${put.status} ${await put.text()}`);
  const args = ['--load', '--url', url, '--key', options.key, '--seconds', options.seconds];
  args.push('--connections', options.connections, '--bytes', options.bytes);
  if (options.keyed) args.push('--keyed');
  if (options.rate !== undefined) args.push('--rate', options.rate);
  const before = process.cpuUsage();
  const child = fork(fileURLToPath(import.meta.url), args, { stdio: 'inherit' });
  const result = await new Promise<Result>((resolve, reject) => {
    child.once('message', (message) => resolve(message as Result));
    child.once('exit', (code) => reject(new Error(`the load process ended early with ${code}`)));
  });
  const cpu = process.cpuUsage(before);
  const perSecond = Math.round(result.events / result.seconds);
  console.log(
    `${perSecond} events/s (${result.events} × 202, ${result.refused} refused, ${options.bytes} bytes of data)`,
  );
  console.log(
    `latency ms: p50 ${result.p50.toFixed(1)}, p99 ${result.p99.toFixed(1)}, max ${result.max.toFixed(1)}`,
  );
  if (options.url === undefined) {
    console.log(`API process: ${((cpu.user + cpu.system) / result.events).toFixed(0)} µs CPU per event`);
  }
  await close();
}

/** Bare sockets: an HTTP client would take the CPU that the API and PostgreSQL need on the same machine. */
async function load(url: string): Promise<void> {
  const { hostname, port } = new URL(url);
  const seconds = Number(options.seconds);
  const data = JSON.stringify({
    amount: 12_345_678_901_234,
    text: 'x'.repeat(Math.max(0, Number(options.bytes) - 42)),
  });
  const head = `POST /v1/tenants/bench/events HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${options.key}\r\ncontent-type: application/json\r\n`;
  const plain = `{"type":"bench.made","data":${data}}`;
  const fixed = Buffer.from(`${head}content-length: ${Buffer.byteLength(plain)}\r\n\r\n${plain}`);
  const run = Date.now().toString(36);
  let made = 0;
  const request = (): Buffer => {
    if (!options.keyed) return fixed;
    const body = `{"type":"bench.made","id":"${run}_${made++}","data":${data}}`;
    return Buffer.from(`${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  };
  const connections = Number(options.connections);
  const pauseMs = options.rate === undefined ? 0 : (connections / Number(options.rate)) * 1_000;
  const latencies: number[] = [];
  let refused = 0;
  const start = performance.now();
  const until = start + seconds * 1_000;
  await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const socket = connect(Number(port), hostname).setNoDelay(true);
      let next = start + (pauseMs * index) / connections;
      await new Promise<void>((resolve, reject) => {
        let sent = 0;
        let answer = '';
        const send = () => {
          if (performance.now() >= until) {
            socket.destroy();
            resolve();
            return;
          }
          sent = performance.now();
          socket.write(request());
        };
        socket.once(
          'connect',
          pauseMs === 0 ? send : () => setTimeout(send, Math.max(0, next - performance.now())),
        );
        socket.on('error', reject);
        socket.on('data', (chunk) => {
          answer += chunk.toString('latin1');
          const end = answer.indexOf('\r\n\r\n');
          const length = Number(/content-length: (\d+)/i.exec(answer)?.[1] ?? Number.NaN);
          if (end < 0 || answer.length < end + 4 + length) return;
          if (answer.startsWith('HTTP/1.1 202')) latencies.push(performance.now() - sent);
          else if (refused++ === 0) console.log(answer);
          answer = '';
          next += pauseMs;
          if (pauseMs === 0) send();
          else setTimeout(send, Math.max(0, next - performance.now()));
        });
      });
    }),
  );
  latencies.sort((a, b) => a - b);
  const at = (share: number) => latencies[Math.floor(latencies.length * share)] ?? 0;
  const elapsed = (performance.now() - start) / 1_000;
  process.send?.({
    events: latencies.length,
    seconds: elapsed,
    refused,
    p50: at(0.5),
    p99: at(0.99),
    max: at(0.999999),
  });
  process.disconnect?.();
}
