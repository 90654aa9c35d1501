/** What an attempt needs to know: the delivery, its event's bytes, its endpoint's address and secrets. */
import { texts, timestamps } from './arrays.ts';
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
  content: EventContent | null; // null: not loaded yet (groups load it as they claim), or gone
}

/** What of an event is sent. */
export interface EventContent {
  raw: boolean;
  content_type: string;
  version: string | null; // the producer's version, as text: it may exceed 2^53
  occurred_at: Date;
  body: Buffer;
}

const COLUMNS = `w.delivery, w.tenant, w.endpoint, w.event, w.event_at, w.event_type, w.sequence, w.kind, w.lane, w.state, w.due_at,
  w.deadline, w.n, w.step, w.burned, w.generation, w.workflow, w.resume_at`;
const CONTENT = 'v.raw, v.content_type, v.version::text as version, v.occurred_at, v.body';

/** The named deliveries that are still unfinished, with their events. */
export async function loadDeliveries(db: Db, deliveries: readonly string[]): Promise<LoadedDelivery[]> {
  const result = await db.query({
    name: 'load_deliveries',
    // Row by row on purpose: a hash join would read every event there is, and the limit ends the search at the first hit.
    text: `select ${COLUMNS}, ${CONTENT} from posthaste.work w cross join lateral (
        select * from posthaste.all_events v where v.tenant = w.tenant and v.created_at = w.event_at and v.id = w.event limit 1) v
      where w.delivery = any ($1)`,
    values: [deliveries],
  });
  return result.rows.map(({ raw, content_type, version, occurred_at, body, ...row }) => ({
    ...row,
    content: { raw, content_type, version, occurred_at, body },
  }));
}

/** The members of a group, in the order of their tenants' sequences. */
export async function loadDispatch(db: Db, dispatch: string): Promise<LoadedDelivery[]> {
  const result = await db.query({
    name: 'load_dispatch',
    text: `select ${COLUMNS} from posthaste.work w where w.dispatch = $1 order by w.delivery`,
    values: [dispatch],
  });
  for (const row of result.rows) row.content = null;
  return result.rows;
}

/** Fills in the events that are missing. One may stand in several rows; its bytes are fetched once. */
export async function loadContents(db: Db, rows: readonly LoadedDelivery[]): Promise<void> {
  const firsts = new Map<string, number>(); // of one event: its place among what is asked for
  const asked: LoadedDelivery[] = [];
  for (const row of rows) {
    if (row.content !== null || firsts.has(`${row.tenant} ${row.event}`)) continue;
    firsts.set(`${row.tenant} ${row.event}`, asked.push(row));
  }
  if (asked.length === 0) return;
  const result = await db.query({
    name: 'load_contents',
    text: `select a.place, ${CONTENT} from unnest($1::text[], $2::timestamptz[], $3::text[]) with ordinality a (tenant, at, id, place)
      cross join lateral (
        select * from posthaste.all_events v where v.tenant = a.tenant and v.created_at = a.at and v.id = a.id limit 1) v`,
    values: [
      texts(asked.map((r) => r.tenant)),
      timestamps(asked.map((r) => r.event_at.getTime())),
      texts(asked.map((r) => r.event)),
    ],
  });
  const contents: (EventContent | undefined)[] = [];
  for (const content of result.rows) contents[content.place] = content;
  for (const row of rows) row.content ??= contents[firsts.get(`${row.tenant} ${row.event}`) ?? 0] ?? null;
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
  valid_until: Date | null; // when the first of these secrets stops signing
}

/** Endpoints with the secrets that sign now. */
export async function loadEndpoints(db: Db, endpoints: readonly string[]): Promise<LoadedEndpoint[]> {
  const result = await db.query({
    name: 'load_endpoints',
    text: `select e.id, e.tenant, e.url, e.state, e.revision, s.cap, e.timeout_ms, e.deadline_ms, e.retry_policy, e.headers_sealed,
        e.tls_sealed, e.traceparent,
        (select coalesce(json_agg(json_build_object('id', k.id, 'kind', k.kind, 'sealed', encode(k.sealed, 'base64')) order by k.created_at desc, k.id desc), '[]')
         from posthaste.endpoint_secrets k where k.endpoint = e.id and (k.expires_at is null or k.expires_at > clock_timestamp())) as secrets,
        (select min(k.expires_at) from posthaste.endpoint_secrets k where k.endpoint = e.id and k.expires_at > clock_timestamp()) as valid_until
      from posthaste.endpoints e join posthaste.endpoint_state s on s.endpoint = e.id
      where e.id = any ($1)`,
    values: [endpoints],
  });
  return result.rows;
}

/** A delivery that counts on its workflow; null when it has ended or needs none. */
export async function waitingFor(
  db: Db,
  delivery: string,
): Promise<{ state: LoadedDelivery['state']; generation: number; due_at: Date } | null> {
  const result = await db.query({
    name: 'waiting_for',
    text: 'select state, generation, due_at from posthaste.work where delivery = $1 and workflow and not cancel_requested',
    values: [delivery],
  });
  return result.rows[0] ?? null;
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
