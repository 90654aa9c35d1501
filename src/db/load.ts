/** What an attempt needs to know: the delivery, its event's bytes, its endpoint's address and secrets. */
import type { Db } from './pool.ts';

export interface LoadedDelivery {
  delivery: string;
  tenant: string;
  endpoint: string;
  event: string;
  event_at: Date;
  event_type: string;
  sequence: number;
  kind: 'live' | 'replay' | 'test';
  lane: 'first' | 'retry' | 'held' | 'bulk';
  state: 'ready' | 'sending' | 'retrying' | 'held';
  due_at: Date;
  deadline: Date;
  n: number;
  step: number;
  burned: number;
  generation: number;
  workflow: boolean;
  resume_at: Date | null;
  raw: boolean;
  content_type: string;
  version: string | null; // the producer's version, as text: it may exceed 2^53
  occurred_at: Date;
  body: Buffer | null; // null: not loaded yet (groups load bodies as they claim)
}

const COLUMNS = `w.delivery, w.tenant, w.endpoint, w.event, w.event_at, w.event_type, w.sequence, w.kind, w.lane, w.state, w.due_at,
  w.deadline, w.n, w.step, w.burned, w.generation, w.workflow, w.resume_at, v.raw, v.content_type, v.version::text as version,
  v.occurred_at`;
// Row by row on purpose: a hash join would read every event there is, and the limit ends the search at the first hit.
const FROM = `from posthaste.work w cross join lateral (
  select * from posthaste.all_events v where v.tenant = w.tenant and v.created_at = w.event_at and v.id = w.event limit 1) v`;

/** The named deliveries that are still unfinished. */
export async function loadDeliveries(db: Db, deliveries: readonly string[]): Promise<LoadedDelivery[]> {
  const result = await db.query({
    name: 'load_deliveries',
    text: `select ${COLUMNS}, v.body ${FROM} where w.delivery = any ($1)`,
    values: [deliveries],
  });
  return result.rows;
}

/** The members of a group, in the order of their tenants' sequences. */
export async function loadDispatch(db: Db, dispatch: string): Promise<LoadedDelivery[]> {
  const result = await db.query({
    name: 'load_dispatch',
    text: `select ${COLUMNS}, null::bytea as body ${FROM} where w.dispatch = $1 order by w.delivery`,
    values: [dispatch],
  });
  return result.rows;
}

/** Fills in the bodies that are missing. An event may stand in several rows; its bytes are fetched once. */
export async function loadBodies(db: Db, rows: readonly LoadedDelivery[]): Promise<void> {
  const missing = new Map<string, LoadedDelivery[]>();
  for (const row of rows) {
    if (row.body !== null) continue;
    const key = `${row.tenant} ${row.event}`;
    missing.set(key, [...(missing.get(key) ?? []), row]);
  }
  if (missing.size === 0) return;
  const firsts = [...missing.values()].map((same) => same[0]!);
  const result = await db.query({
    name: 'load_bodies',
    text: `select v.tenant, v.id, v.body from unnest($1::text[], $2::timestamptz[], $3::text[]) a (tenant, at, id)
      cross join lateral (
        select * from posthaste.all_events v where v.tenant = a.tenant and v.created_at = a.at and v.id = a.id limit 1) v`,
    values: [firsts.map((r) => r.tenant), firsts.map((r) => r.event_at), firsts.map((r) => r.event)],
  });
  for (const { tenant, id, body } of result.rows)
    for (const row of missing.get(`${tenant} ${id}`)!) row.body = body;
}

export interface LoadedEndpoint {
  id: string;
  tenant: string;
  url: string;
  state: string;
  revision: number;
  cap: number;
  timeout_ms: number;
  deadline_ms: number;
  retry_policy: unknown;
  headers_sealed: Buffer | null;
  tls_sealed: Buffer | null;
  traceparent: boolean;
  secrets: { id: string; kind: 'hmac' | 'ed25519'; sealed: string }[]; // sealed: base64; newest first
}

/** Endpoints with the secrets that sign now. Read for every batch: a change takes effect on the next attempt. */
export async function loadEndpoints(db: Db, endpoints: readonly string[]): Promise<LoadedEndpoint[]> {
  const result = await db.query({
    name: 'load_endpoints',
    text: `select e.id, e.tenant, e.url, e.state, e.revision, s.cap, e.timeout_ms, e.deadline_ms, e.retry_policy, e.headers_sealed,
        e.tls_sealed, e.traceparent,
        (select coalesce(json_agg(json_build_object('id', k.id, 'kind', k.kind, 'sealed', encode(k.sealed, 'base64')) order by k.created_at desc, k.id desc), '[]')
         from posthaste.endpoint_secrets k where k.endpoint = e.id and (k.expires_at is null or k.expires_at > clock_timestamp())) as secrets
      from posthaste.endpoints e join posthaste.endpoint_state s on s.endpoint = e.id
      where e.id = any ($1)`,
    values: [endpoints],
  });
  return result.rows;
}

/** How a delivery that is no longer in work ended, or null when it does not exist. */
export async function loadFinal(
  db: Db,
  delivery: string,
  createdAt: Date,
): Promise<{
  state: string;
  kind: string;
  n: number;
  reason: string | null;
  last_status: number | null;
  last_class: string | null;
} | null> {
  const result = await db.query({
    name: 'load_final',
    text: 'select state, kind, n, reason, last_status, last_class from posthaste.deliveries where id = $1 and created_at = $2',
    values: [delivery, createdAt],
  });
  return result.rows[0] ?? null;
}
