/**
 * What the fault tests share: whole processes as children that can be killed, a crowd of tenants and endpoints, and the
 * audit of what the receiver saw against what the database says.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Pool } from '../../src/db/pool.ts';
import { ADMIN_KEY, type TestEngine } from '../support/engine.ts';
import { type RoleProcess, startRole } from '../support/process.ts';
import type { ReceivedRequest } from '../support/receiver.ts';
import { MASTER_KEYS_TEXT, seedEndpoint, seedTenant } from '../support/seed.ts';

/** The environment of a role process on the engine's database and namespace. */
export function environment(engine: TestEngine, extra: Record<string, string> = {}): Record<string, string> {
  return {
    DATABASE_URL: engine.config.databaseUrl,
    TEMPORAL_ADDRESS: engine.config.temporal.address,
    TEMPORAL_NAMESPACE: engine.config.temporal.namespace,
    POSTHASTE_MASTER_KEYS: MASTER_KEYS_TEXT,
    POSTHASTE_ADMIN_KEY: ADMIN_KEY,
    POSTHASTE_GROUPING: engine.config.grouping,
    EGRESS_ALLOW: '127.0.0.0/8:*',
    PORT: '0',
    ...extra,
  };
}

export interface Running extends RoleProcess {
  url: string;
}

/** A process of this role (with its flags) that says it is ready. */
export async function startReady(
  engine: TestEngine,
  role: string | readonly string[],
  extra: Record<string, string> = {},
): Promise<Running> {
  const running = await startRole([role].flat(), environment(engine, extra));
  const line = await running.waitForLine(/"msg":"ready"/, 60_000);
  return { ...running, url: String(JSON.parse(line).url) };
}

export interface Crowd {
  tenants: string[];
  /** Deliveries made by one event. */
  fanOut: number;
  /** One transaction per tenant; answers how many deliveries that makes. */
  enqueue(eventsPerTenant: number): Promise<number>;
}

/** Tenants with endpoints of their own on one receiver, told apart by path. */
export async function seedCrowd(
  db: Pool,
  options: {
    name: string;
    tenants: number;
    endpoints: number;
    url: string;
    cap?: number;
    timeoutMs?: number;
    policy?: unknown;
  },
): Promise<Crowd> {
  const tenants = Array.from({ length: options.tenants }, (_, t) => `${options.name}${t}`);
  for (const tenant of tenants) {
    await seedTenant(db, tenant);
    for (let e = 0; e < options.endpoints; e++) {
      await seedEndpoint(db, tenant, {
        url: `${options.url}/${tenant}/${e}`,
        ...(options.cap === undefined ? {} : { cap: options.cap }),
        ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
        ...(options.policy === undefined ? {} : { policy: options.policy }),
      });
    }
  }
  return {
    tenants,
    fanOut: options.endpoints,
    async enqueue(eventsPerTenant) {
      await db.query(
        `select count(posthaste.enqueue(t, 'fault.test', json_build_object('n', g)))
         from unnest($1::text[]) t, generate_series(1, $2::int) g`,
        [tenants, eventsPerTenant],
      );
      return tenants.length * eventsPerTenant * options.endpoints;
    },
  };
}

/** Resolves when so many deliveries have ended; polls gently, because the engine needs the machine. */
export async function ended(db: Pool, count: number, timeoutMs: number): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const rows = await db.query('select count(*)::int as c from posthaste.deliveries');
    if (rows.rows[0].c >= count) return;
    if (Date.now() > end) {
      const work = await db.query(
        `select lane, state, workflow, dispatch is not null as grouped, scan_at < now() as late, count(*)::int as c, max(scans) as scans
         from posthaste.work group by 1, 2, 3, 4, 5`,
      );
      const outbox = await db.query('select count(*)::int as c from posthaste.outbox');
      throw new Error(
        `${rows.rows[0].c} of ${count} deliveries ended after ${timeoutMs} ms; outbox ${outbox.rows[0].c}, work ${JSON.stringify(work.rows)}`,
      );
    }
    await delay(100);
  }
}

export interface Audit {
  requests: number;
  deliveries: number;
  /** Requests beyond the first of an event to an endpoint. */
  repeats: number;
  /** Attempts whose outcome nobody saw: of class worker_lost, or another that was named. */
  unknown: number;
}

/**
 * After everything has ended at a receiver that only says 200: nothing is missing, every repeat has its unknown
 * attempt, attempt numbers and sequences have no gaps, and nothing is in flight. `unseen`: classes of attempts that may have
 * been received without the sender seeing the answer.
 */
export async function audit(
  db: Pool,
  requests: readonly ReceivedRequest[],
  unseen: readonly string[] = ['worker_lost'],
): Promise<Audit> {
  const attempts = await db.query(
    `select a.request_url as url, a.event, a.n, a.class, d.n as total, d.state
     from posthaste.deliveries d left join posthaste.attempts a on a.delivery = d.id order by a.n`,
  );
  interface Log {
    numbers: number[];
    total: number;
    lost: number;
    seen: number;
  }
  const logs = new Map<string, Log>();
  for (const row of attempts.rows) {
    expect(row.state).toBe('delivered');
    expect(['ok', ...unseen]).toContain(row.class);
    const key = `${new URL(row.url).pathname} ${row.event}`;
    const log: Log = logs.get(key) ?? { numbers: [], total: row.total, lost: 0, seen: 0 };
    log.numbers.push(row.n);
    if (row.class !== 'ok') log.lost++;
    logs.set(key, log);
  }
  const strangers: string[] = [];
  for (const request of requests) {
    const log = logs.get(`${request.path} ${request.webhookId}`);
    if (log === undefined) strangers.push(`${request.path} ${request.webhookId}`);
    else log.seen++;
  }
  expect(strangers).toEqual([]);
  const wrong: string[] = [];
  const result: Audit = { requests: requests.length, deliveries: logs.size, repeats: 0, unknown: 0 };
  for (const [key, log] of logs) {
    if (log.seen === 0) wrong.push(`${key} was never received`);
    if (log.seen - 1 > log.lost)
      wrong.push(`${key} came ${log.seen} times with ${log.lost} unknown attempts`);
    if (log.numbers.join() !== Array.from({ length: log.total }, (_, i) => i + 1).join())
      wrong.push(`${key} has attempts ${log.numbers} of ${log.total}`);
    result.repeats += log.seen - 1;
    result.unknown += log.lost;
  }
  expect(wrong).toEqual([]);
  const rest = await db.query(
    `select (select coalesce(sum(in_flight), 0)::int from posthaste.endpoint_state) as in_flight,
       (select count(*)::int from posthaste.work) as work, (select count(*)::int from posthaste.outbox) as outbox`,
  );
  expect(rest.rows[0]).toEqual({ in_flight: 0, work: 0, outbox: 0 });
  await expectSequencesWithoutGaps(db);
  return result;
}

/** Every tenant's events carry 1, 2, 3 … */
export async function expectSequencesWithoutGaps(db: Pool): Promise<void> {
  const gaps = await db.query(
    `select tenant, count(*)::int as events, min(sequence)::int as first, max(sequence)::int as last, count(distinct sequence)::int as numbers
     from posthaste.event_fanouts group by tenant
     having min(sequence) <> 1 or max(sequence) <> count(*) or count(distinct sequence) <> count(*)`,
  );
  expect(gaps.rows).toEqual([]);
}
