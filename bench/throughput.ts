/**
 * Deliveries per second of the whole path, beside a bare loop that signs and POSTs with undici to the same receiver in
 * the same run. `EVENTS` wait in the outbox for `ENDPOINTS` endpoints of as many tenants when relay and worker start.
 * Usage: node bench/throughput.ts (embedded PostgreSQL and Temporal dev server; or DATABASE_URL, TEMPORAL_ADDRESS).
 */
import { fork } from 'node:child_process';
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool as HttpPool } from 'undici';
import { migrate } from '../src/db/migrate.ts';
import { createPool } from '../src/db/pool.ts';
import { parseEgressAllow } from '../src/domain/addresses.ts';
import { startEmbedded } from '../src/embedded/index.ts';
import { createLog } from '../src/log.ts';
import { startProcess } from '../src/process.ts';
import { masterKeys, seedEndpoint, seedTenant } from '../test/support/seed.ts';

const EVENTS = Number(process.env.EVENTS ?? 20_000);
const ENDPOINTS = Number(process.env.ENDPOINTS ?? 100);
const CAP = Number(process.env.CAP ?? 10);

const sink = fork(new URL('./sink.mjs', import.meta.url), [process.env.DELAY ?? '0'], {
  stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
});
const port = await new Promise<number>((resolve) =>
  sink.stdout!.once('data', (data) => resolve(Number(String(data)))),
);
const dataDir = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
const embedded = await startEmbedded({
  dataDir,
  log: { info: () => {} },
  databaseUrl: process.env.DATABASE_URL,
  temporalAddress: process.env.TEMPORAL_ADDRESS,
});

async function bareLoop(count: number): Promise<number> {
  const pool = new HttpPool(`http://127.0.0.1:${port}`, { connections: 50, pipelining: 1 });
  const key = createSecretKey(randomBytes(32));
  const body = Buffer.from(
    JSON.stringify({ id: 'evt_x', type: 'invoice.paid', data: { a: 'x'.repeat(900) } }),
  );
  let next = 0;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      while (next < count) {
        const id = `evt_${next++}`;
        const timestamp = String(Math.floor(Date.now() / 1_000));
        const signature = `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')}`;
        const response = await pool.request({
          path: '/hook',
          method: 'POST',
          body,
          headers: {
            'content-type': 'application/json',
            'webhook-id': id,
            'webhook-timestamp': timestamp,
            'webhook-signature': signature,
          },
        });
        await response.body.dump();
      }
    }),
  );
  const rate = count / ((performance.now() - started) / 1_000);
  await pool.close();
  return rate;
}

try {
  await migrate(embedded.databaseUrl);
  const db = createPool(embedded.databaseUrl, { max: 4 });
  const run = `b${Date.now()}`;
  for (let i = 0; i < ENDPOINTS; i++) {
    await seedTenant(db, `${run}-${i}`);
    await seedEndpoint(db, `${run}-${i}`, { url: `http://127.0.0.1:${port}/${i}`, cap: CAP });
  }
  await db.query(
    `select count(posthaste.enqueue($1::text || '-' || (g % $3), 'invoice.paid', json_build_object('a', repeat('x', 900)))) from generate_series(1, $2::int) g`,
    [run, EVENTS, ENDPOINTS],
  );
  await db.query('analyze');
  const before = await bareLoop(20_000);
  const cpu = process.cpuUsage();
  const started = performance.now();
  const running = await startProcess({
    config: {
      port: 0,
      host: '127.0.0.1',
      databaseUrl: embedded.databaseUrl,
      databaseDirectUrl: embedded.databaseUrl,
      temporal: {
        given: true,
        address: embedded.temporalAddress,
        namespace: 'default',
        connectionOptions: { address: embedded.temporalAddress },
      },
      temporalCli: undefined,
      dataDir,
      adminKey: undefined,
      masterKeys,
      grouping: (process.env.GROUPING as 'auto' | 'never') ?? 'auto',
      maxEventBytes: 262_144,
      egressAllow: parseEgressAllow('127.0.0.1/32:*'),
      egressProxy: undefined,
      logLevel: 'warn',
    },
    roles: ['relay', 'worker'],
    log: createLog({ level: 'warn' }),
  });
  const ready = performance.now();
  let done = 0;
  let last = 0;
  while (done < EVENTS) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    done = (
      await db.query('select count(*) as c from posthaste.deliveries where tenant like $1', [`${run}-%`])
    ).rows[0].c;
    if (process.env.VERBOSE)
      console.error(`${((performance.now() - ready) / 1_000).toFixed(2)} s: ${done} (+${done - last})`);
    last = done;
  }
  const seconds = (performance.now() - ready) / 1_000;
  const used = process.cpuUsage(cpu);
  const repeats = (
    await db.query('select count(*) as c from posthaste.deliveries where n > 1 and tenant like $1', [
      `${run}-%`,
    ])
  ).rows[0].c;
  const after = await bareLoop(20_000);
  const bare = (before + after) / 2;
  console.log(
    JSON.stringify({
      events: EVENTS,
      endpoints: ENDPOINTS,
      cap: CAP,
      deliveries_per_second: Math.round(EVENTS / seconds),
      bare_loop_per_second: Math.round(bare),
      ratio: +(EVENTS / seconds / bare).toFixed(3),
      start_up_ms: Math.round(ready - started),
      node_us_per_delivery: Math.round((used.user + used.system) / EVENTS),
      repeats,
    }),
  );
  await running.stop();
  await db.end();
} finally {
  await embedded.stop();
  sink.kill();
  await rm(dataDir, { recursive: true, force: true });
}
process.exit();
