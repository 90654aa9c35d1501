/** What the health step reads and writes (migrations/functions/health.sql), and what people and the API see of it. */
import type { EndpointFacts } from '../domain/endpoint-report.ts';
import type { Db } from './pool.ts';

export interface DueHealth {
  endpoint: string;
  tenant: string;
  url: string;
  version: number | null; // null: nothing is remembered yet
  memory: unknown;
  facts: unknown[];
  ids: number[];
  more: boolean;
  epoch: number;
  mode: 'shared' | 'pump';
  health: string;
  oks: number;
  send_rate: number;
  recent_rate: number; // the same over 2 s
  arrival_rate: number; // new held deliveries per second, of the last 10 s
  last_success_at: Date | null;
  pause_until: Date | number; // -Infinity: none
  cap: number;
  timeout_ms: number;
  operator: 'active' | 'paused' | 'disabled' | 'deleted';
  revision: number; // of the settings
  fails_in_row: number;
  held: number;
  now_ms: number; // the database's time
}

/** Endpoints with news, or past the time their health is to be looked at. `limit`: rows of news. */
export async function healthDue(db: Db, shards: readonly number[], limit: number): Promise<DueHealth[]> {
  const result = await db.query({
    name: 'health_due',
    text: 'select * from posthaste.health_due($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

/** One decision, as apply_health reads it. Times RFC 3339. */
export interface AppliedHealth {
  endpoint: string;
  version: number | null;
  memory: unknown;
  wake_at: string | null;
  ids: readonly number[];
  epoch: number;
  health: string;
  pump: boolean;
  set_probe: boolean;
  probe_at: string | null;
  rate: number | null;
  pause_until: string | null;
  clear_pause: boolean;
  keep_pump_until: string | null;
  live_since: string | null;
  reset_fails: boolean;
  reset_tokens: boolean;
  disable: 'gone' | 'failing' | null;
  edges: readonly unknown[];
}

/** Writes decisions; answers those that stood. The others lost a race and are made again from their inbox. */
export async function applyHealth(
  db: Db,
  steps: readonly AppliedHealth[],
): Promise<{ endpoint: string; disabled: boolean }[]> {
  const result = await db.query({
    name: 'apply_health',
    text: 'select endpoint, disabled from posthaste.apply_health($1)',
    values: [JSON.stringify(steps)],
  });
  return result.rows;
}

/** News of an endpoint for the health step: what an operator did. In the transaction that does it. */
export async function tellHealth(
  db: Db,
  endpoint: string,
  edit: 'edit' | 'enable' | 'resume' | 'pause' | 'disable',
): Promise<void> {
  await db.query({
    name: 'tell_health',
    text: `insert into posthaste.health_inbox (endpoint, shard, fact)
      select s.endpoint, s.shard, json_build_object('edit', $2::text) from posthaste.endpoint_state s where s.endpoint = $1`,
    values: [endpoint, edit],
  });
}

export interface EndpointHealthRow extends EndpointFacts {
  in_flight: number;
  last_success_at: Date | null;
}

/** Columns of EndpointHealthRow, over endpoints e, endpoint_state s and (left join) endpoint_health h. */
export const HEALTH_COLUMNS = `e.state, s.mode, s.mode_since, s.health, h.state as memory, s.probe_at, s.pause_until, s.rate, s.rate_limit,
  (s.send_rate * exp(greatest(-40, -extract(epoch from clock_timestamp() - s.send_rate_at)::float8 / 30)))::real as send_rate,
  s.in_flight, s.last_success_at,
  case when s.mode = 'pump' then
    (select count(*)::int from (select from posthaste.work w where w.endpoint = s.endpoint and w.held_deadline is not null limit 10000) x) else 0 end as held`;

export async function getEndpointHealth(db: Db, endpoint: string): Promise<EndpointHealthRow | null> {
  const result = await db.query({
    name: 'get_endpoint_health',
    text: `select ${HEALTH_COLUMNS} from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint
      left join posthaste.endpoint_health h on h.endpoint = s.endpoint where s.endpoint = $1`,
    values: [endpoint],
  });
  return result.rows[0] ?? null;
}

/** The endpoint's workflow ends: the next time it needs one, another is started. */
export async function disownEndpointRow(db: Db, endpoint: string): Promise<void> {
  await db.query({
    name: 'disown_endpoint',
    text: 'update posthaste.endpoint_health set workflow = false where endpoint = $1 and workflow',
    values: [endpoint],
  });
}
