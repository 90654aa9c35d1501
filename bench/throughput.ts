/**
 * Deliveries per second of the whole path, beside a bare loop that signs and POSTs with undici to the same receiver in
 * the same run. `EVENTS` wait in the outbox for `ENDPOINTS` endpoints of as many tenants when relay and worker start.
 * Usage: node bench/throughput.ts (embedded PostgreSQL and Temporal dev server; or DATABASE_URL, TEMPORAL_ADDRESS).
 */
import { fork } from 'node:child_process';
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
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

/** CPU milliseconds used so far by the processes whose command line matches, ended children of theirs included. */
function cpuOf(pattern: RegExp): number {
  let ticks = 0;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!pattern.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))) continue;
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
      for (const field of [11, 12, 13, 14]) ticks += Number(fields[field]);
    } catch {
      // it ended meanwhile
    }
  }
  return ticks * 10;
}
const parts = {
  postgres: /postgres: posthaste|postgres: (checkpointer|background|walwriter|autovacuum)/,
  temporal: new RegExp(`temporal.*${embedded.temporalAddress.split(':')[1]}`),
  receiver: /bench\/sink\.mjs/,
};
const usage = (): Record<string, number> =>
  Object.fromEntries(Object.entries(parts).map(([name, pattern]) => [name, cpuOf(pattern)]));

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
  if (process.env.FUNCTIONS) await db.query(`alter role current_user set track_functions = 'all'`);
  // A Temporal server that was just made works on itself for a while.
  await new Promise((resolve) => setTimeout(resolve, 8_000));
  const before = process.env.BARE === '0' ? 1 : await bareLoop(20_000);
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
      smtpUrl: undefined,
      mailFrom: undefined,
      selfCheck: [],
      logLevel: 'warn',
    },
    roles: ['relay', 'worker'],
    log: createLog({ level: process.env.LOG_LEVEL ?? 'warn' }),
  });
  const ready = performance.now();
  const cpuReady = process.cpuUsage();
  const partsReady = usage();
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
  const used = process.cpuUsage(cpuReady);
  const partsUsed = usage();
  const repeats = (
    await db.query('select count(*) as c from posthaste.deliveries where n > 1 and tenant like $1', [
      `${run}-%`,
    ])
  ).rows[0].c;
  const after = process.env.BARE === '0' ? 1 : await bareLoop(20_000);
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
      cpu_us_per_delivery: {
        node: Math.round((used.user + used.system) / EVENTS),
        ...Object.fromEntries(
          Object.keys(parts).map((name) => [
            name,
            Math.round(((partsUsed[name]! - partsReady[name]!) * 1_000) / EVENTS),
          ]),
        ),
      },
      repeats,
    }),
  );
  if (process.env.FUNCTIONS) {
    await new Promise((resolve) => setTimeout(resolve, 1_500)); // statistics are flushed once a second
    const calls = await db.query(
      `select funcname, calls, round(total_time)::int as ms from pg_stat_user_functions where schemaname = 'posthaste' order by total_time desc limit 12`,
    );
    console.table(calls.rows);
  }
  await running.stop();
  await db.end();
} finally {
  await embedded.stop();
  sink.kill();
  await rm(dataDir, { recursive: true, force: true });
}
process.exit();
