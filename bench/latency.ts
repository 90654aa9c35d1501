/**
 * Publish → receive latency through the API: `RATE` events/s for `SECONDS`, measured at the receiver in this process.
 * The whole product runs in a process of its own. Usage: RATE=10 SECONDS=20 node bench/latency.ts
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { Pool as HttpPool } from 'undici';
import { migrate } from '../src/db/migrate.ts';
import { createPool } from '../src/db/pool.ts';
import { startEmbedded } from '../src/embedded/index.ts';

const RATE = Number(process.env.RATE ?? 10);
const SECONDS = Number(process.env.SECONDS ?? 20);
/** Unmeasured, at the same rate: a process that has just started is not yet compiled. */
const WARM_UP_SECONDS = Number(process.env.WARM_UP_SECONDS ?? 5);

const dataDir = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
const embedded = await startEmbedded({ dataDir, log: { info: () => {} } });
await migrate(embedded.databaseUrl);

const sentAt = new Map<string, number>();
const latencies: number[] = [];
let done: () => void = () => {};
const arrivedAt = new Map<string, number>();

/** The receiver may be quicker than the API's answer that names the event: whichever comes second counts. */
function settle(id: string): void {
  const [sent, arrived] = [sentAt.get(id), arrivedAt.get(id)];
  if (sent === undefined || arrived === undefined) return;
  latencies.push(arrived - sent);
  if (latencies.length >= RATE * SECONDS) done();
}
const receiver = createServer((request, response) => {
  arrivedAt.set(request.headers['webhook-id'] as string, performance.now());
  request.resume();
  response.end();
  settle(request.headers['webhook-id'] as string);
}).listen(0, '127.0.0.1');
await once(receiver, 'listening');
const receiverPort = (receiver.address() as AddressInfo).port;

const key = 'phk_bench_0123456789abcdef0123456789';
const port = 18_000 + Math.floor(Math.random() * 2_000);
const app: ChildProcess = spawn(
  process.execPath,
  [fileURLToPath(new URL('../dist/main.js', import.meta.url)), 'all'],
  {
    env: {
      ...process.env,
      PORT: String(port),
      DATABASE_URL: embedded.databaseUrl,
      TEMPORAL_ADDRESS: embedded.temporalAddress,
      POSTHASTE_ADMIN_KEY: key,
      POSTHASTE_MASTER_KEYS: `b1:${Buffer.alloc(32, 1).toString('base64')}`,
      EGRESS_ALLOW: `127.0.0.1/32:${receiverPort}`,
      LOG_LEVEL: process.env.LOG_LEVEL ?? 'warn',
    },
    stdio: ['ignore', 'inherit', 'inherit'],
  },
);
const api = new HttpPool(`http://127.0.0.1:${port}`, { connections: 20 });
const call = async (
  method: 'POST' | 'PUT',
  path: string,
  body: unknown,
): Promise<{ status: number; json: Record<string, string> }> => {
  const response = await api.request({
    method,
    path,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.statusCode, json: (await response.body.json()) as Record<string, string> };
};

try {
  for (;;) {
    const ready = await api.request({ method: 'GET', path: '/readyz' }).catch(() => null);
    await ready?.body.dump();
    if (ready?.statusCode === 200) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await call('PUT', '/v1/tenants/bench', {});
  await call('POST', '/v1/tenants/bench/endpoints', {
    url: `http://127.0.0.1:${receiverPort}/`,
    limits: { in_flight: 100 },
  });
  const publish = async (measured: boolean): Promise<void> => {
    const id = `m${Math.random().toString(36).slice(2)}${performance.now().toFixed(0)}`;
    const at = performance.now();
    const { status, json } = await call('POST', '/v1/tenants/bench/events', {
      type: 'bench.tick',
      data: { id },
    });
    if (status !== 202) throw new Error(`${status} ${JSON.stringify(json)}`);
    if (!measured) return;
    sentAt.set(json.id!, at);
    settle(json.id!);
  };
  const atRate = async (count: number, measured: boolean): Promise<void> => {
    const started = performance.now();
    const under: Promise<void>[] = [];
    for (let i = 0; i < count; i++) {
      const wait = started + (i * 1_000) / RATE - performance.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      under.push(publish(measured));
    }
    await Promise.all(under);
  };
  await atRate(RATE * WARM_UP_SECONDS, false);
  const finished = new Promise<void>((resolve) => {
    done = resolve;
  });
  await atRate(RATE * SECONDS, true);
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, 10_000))]);
  latencies.sort((a, b) => a - b);
  const at = (q: number): number =>
    Math.round(latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * q))]! * 10) / 10;
  const client = new Client({ connection: await Connection.connect({ address: embedded.temporalAddress }) });
  const workflows = await client.workflow.count();
  const db = createPool(embedded.databaseUrl, { max: 1 });
  const phases = await db.query(
    `select percentile_cont(0.5) within group (order by extract(epoch from f.fanned_out_at - f.event_at) * 1000)::int as to_fan_out_ms,
       percentile_cont(0.5) within group (order by extract(epoch from a.started_at - f.fanned_out_at) * 1000)::int as to_post_ms
     from posthaste.event_fanouts f join posthaste.attempts a on a.event = f.event`,
  );
  await db.end();
  console.log(
    JSON.stringify({
      ...phases.rows[0],
      rate: RATE,
      sent: RATE * SECONDS,
      received: latencies.length,
      p50_ms: at(0.5),
      p95_ms: at(0.95),
      p99_ms: at(0.99),
      max_ms: at(1),
      workflows: workflows.count,
    }),
  );
} finally {
  app.kill('SIGTERM');
  await new Promise((resolve) => app.once('exit', resolve));
  await api.destroy();
  receiver.closeAllConnections();
  receiver.close();
  await embedded.stop();
  await rm(dataDir, { recursive: true, force: true });
}
process.exit();
