/**
 * What fan-out, claim and record cost PostgreSQL: microseconds of backend CPU and of wall time per delivery, in
 * batches. One connection, nothing else. Usage: node bench/verbs.ts [deliveries] (Linux: reads /proc of the backend).
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadDispatch } from '../src/db/load.ts';
import { migrate } from '../src/db/migrate.ts';
import { fanOut } from '../src/db/outbox.ts';
import { createPool } from '../src/db/pool.ts';
import { acquireLeases } from '../src/db/shards.ts';
import { claim, record } from '../src/db/verbs.ts';
import { startPostgres } from '../src/embedded/postgres.ts';
import { newId } from '../src/ids.ts';
import { seedEndpoint, seedTenant } from '../test/support/seed.ts';

const COUNT = Number(process.argv[2] ?? 10_000);
const directory = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
const server = await startPostgres({ directory, notice: () => {}, port: 0 });
await migrate(server.url);
const db = createPool(server.url, { max: 1 });
const pid = (await db.query('select pg_backend_pid() as pid')).rows[0].pid;
const cpuMs = (): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
};
const spent: Record<string, { cpu: number; wall: number; rows: number }> = {};
async function measure<T>(name: string, rows: number, work: () => Promise<T>): Promise<T> {
  const [cpu, wall] = [cpuMs(), performance.now()];
  const result = await work();
  spent[name] ??= { cpu: 0, wall: 0, rows: 0 };
  const at = spent[name];
  at.cpu += cpuMs() - cpu;
  at.wall += performance.now() - wall;
  at.rows += rows;
  return result;
}

const TENANTS = 100;
for (let i = 0; i < TENANTS; i++) {
  await seedTenant(db, `t${i}`);
  await seedEndpoint(db, `t${i}`, { url: 'https://example.com/', cap: 1_000 });
}
const leases = await acquireLeases(db, 'bench', 3_600_000, 16);
await measure('enqueue', COUNT, () =>
  db.query(
    `select count(posthaste.enqueue('t' || (g % ${TENANTS}), 'a.b', json_build_object('a', repeat('x', 900)))) from generate_series(1, ${COUNT}) g`,
  ),
);
await db.query('analyze');
const after = new Map(Array.from({ length: TENANTS }, (_, i) => [`t${i}`, { xid: '0', seq: 0 }]));
for (let done = 0; done < COUNT; done += 500) {
  const dispatch = newId('dsp');
  const out = await measure('fan_out', 500, () =>
    fanOut(db, {
      leases,
      tenants: [...after].map(([tenant, position]) => ({ tenant, after: position, limit: 5, room: 500 })),
      dispatch,
      singles: 0,
      aliveMs: 30_000,
    }),
  );
  for (const t of out.tenants) after.set(t.tenant, { xid: t.xid, seq: t.seq });
  const rows = await measure('load', 500, () => loadDispatch(db, dispatch));
  for (let i = 0; i < rows.length; i += 250) {
    const some = rows.slice(i, i + 250);
    const granted = await measure('claim', some.length, () => claim(db, some));
    const endpoints = new Map(some.map((row) => [row.delivery, row.endpoint]));
    const now = Date.now();
    const records = granted.map((g) => ({
      id: newId('att'),
      delivery: g.delivery,
      endpoint: endpoints.get(g.delivery)!,
      token: g.token!,
      n: g.n!,
      outcome: 'delivered' as const,
      reason: null,
      due_at: null,
      step: 0,
      burned: 1,
      workflow: false,
      started_at: now,
      duration_ms: 5,
      status: 200,
      class: 'ok',
      phase: 'headers',
      error: null,
      request_url: 'https://example.com/',
      request_headers: JSON.stringify([
        ['host', 'example.com'],
        ['user-agent', 'Posthaste/1'],
        ['content-type', 'application/json'],
        ['accept-encoding', 'identity'],
        ['webhook-id', 'evt_01M8PV1KCZE5A85DF557809EE5'],
        ['webhook-timestamp', '1764524400'],
        ['webhook-signature', `v1,${'x'.repeat(44)}`],
        ['content-length', '1020'],
      ]),
      request_bytes: 1_020,
      head_bytes: 400,
      response_headers:
        '[["date","Mon, 30 Nov 2026 18:00:00 GMT"],["connection","keep-alive"],["content-length","0"]]',
      response_body: Buffer.alloc(0),
      response_truncated: false,
      fresh_retry: false,
      rule: null,
      own_due_at: null,
      retry_after_s: null,
      health: 'ok' as const,
      epoch: 1,
      revision: 1,
      pause_until: null,
    }));
    for (let j = 0; j < records.length; j += 200)
      await measure('record', Math.min(200, records.length - j), () => record(db, records.slice(j, j + 200)));
  }
}
for (const [name, { cpu, wall, rows }] of Object.entries(spent)) {
  console.log(
    `${name.padEnd(8)} ${((cpu * 1_000) / rows).toFixed(1).padStart(7)} µs CPU  ${((wall * 1_000) / rows).toFixed(1).padStart(7)} µs wall per delivery`,
  );
}
await db.end();
await server.stop();
await rm(directory, { recursive: true, force: true });
process.exit();
