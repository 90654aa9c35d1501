/** Replays: rows that bulk resends, recoveries and bulk cancels page from (migrations/functions/replays.sql). */
import type { Db } from './pool.ts';

/** What a replay matches. Null: anything. `since` and `until`: of the delivery, or (dead letters) of its death. */
export interface ReplayFilter {
  delivery: string | null;
  endpoint: string | null;
  event: string | null;
  type: string | null;
  states: readonly string[] | null;
  status: number | null;
  class: string | null;
  since: Date | null;
  until: Date | null;
}

export interface NewReplay {
  id: string;
  tenant: string;
  action: 'resend' | 'cancel';
  source: 'delivery' | 'deliveries' | 'dead_letters';
  filter: ReplayFilter;
  missed: boolean;
  rate: number; // deliveries per second
  /** Asking again with the same key answers the same replay. */
  key: string | null;
  /** Milliseconds until the scanner starts a workflow for it; 0: at once. */
  aliveMs: number;
}

export interface ReplayRow {
  id: string;
  tenant: string;
  action: 'resend' | 'cancel';
  source: 'delivery' | 'deliveries' | 'dead_letters';
  delivery: string | null;
  endpoint: string | null;
  event: string | null;
  event_type: string | null;
  states: string[] | null;
  last_status: number | null;
  last_class: string | null;
  since: Date | null;
  until: Date | null;
  missed: boolean;
  rate: number;
  state: 'running' | 'done' | 'cancelled' | 'stopped';
  reason: string | null;
  phase: 'deliveries' | 'missed';
  total: number | null;
  moved: number;
  missed_made: number;
  skipped: number;
  waiting: boolean;
  created_at: Date;
  updated_at: Date;
  finished_at: Date | null;
}

const COLUMNS = `r.id, r.tenant, r.action, r.source, r.delivery, r.endpoint, r.event, r.event_type, r.states, r.last_status, r.last_class,
  r.since, r.until, r.missed, r.rate, r.state, r.reason, r.phase, r.total, r.moved, r.missed_made, r.skipped, r.waiting,
  r.created_at, r.updated_at, r.finished_at`;

/**
 * Makes a replay. Answers its id; null: no such tenant, or the key is taken (replayOfKey). The created_at is the
 * database's: what is younger is not matched.
 */
export async function insertReplay(db: Db, replay: NewReplay): Promise<string | null> {
  const { filter } = replay;
  const result = await db.query({
    name: 'insert_replay',
    text: `insert into posthaste.replays (id, tenant, shard, action, source, delivery, endpoint, event, event_type, states, last_status,
          last_class, since, until, missed, rate, key, next_at, alive_until, created_at, updated_at)
        select $1, t.id, t.shard, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, n, n + $17 * interval '1 millisecond', n, n
        from posthaste.tenants t, posthaste.now_ms() n where t.id = $2
        on conflict (key) do nothing returning id`,
    values: [
      replay.id,
      replay.tenant,
      replay.action,
      replay.source,
      filter.delivery,
      filter.endpoint,
      filter.event,
      filter.type,
      filter.states,
      filter.status,
      filter.class,
      filter.since,
      filter.until,
      replay.missed,
      replay.rate,
      replay.key,
      replay.aliveMs,
    ],
  });
  return result.rows[0]?.id ?? null;
}

export async function replayOfKey(db: Db, key: string): Promise<string | null> {
  const result = await db.query({
    name: 'replay_of_key',
    text: 'select id from posthaste.replays where key = $1',
    values: [key],
  });
  return result.rows[0]?.id ?? null;
}

/** One of a tenant, or (tenant null, from Temporal's side) of any. */
export async function getReplay(db: Db, tenant: string | null, id: string): Promise<ReplayRow | null> {
  const result = await db.query({
    name: 'get_replay',
    text: `select ${COLUMNS} from posthaste.replays r where r.id = $2 and ($1::text is null or r.tenant = $1)`,
    values: [tenant, id],
  });
  return result.rows[0] ?? null;
}

/** Newest first, before the given id. */
export async function listReplays(
  db: Db,
  tenant: string,
  filter: { state: string | null; endpoint: string | null },
  before: string | null,
  limit: number,
): Promise<ReplayRow[]> {
  const result = await db.query({
    text: `select ${COLUMNS} from posthaste.replays r
      where r.tenant = $1 and ($2::text is null or r.state = $2) and ($3::text is null or r.endpoint = $3) and ($4::text is null or r.id < $4)
      order by r.id desc limit $5`,
    values: [tenant, filter.state, filter.endpoint, before, limit],
  });
  return result.rows;
}

/** Stops its paging; what it has moved stays. One that has ended stays as it is. */
export async function cancelReplay(db: Db, tenant: string | null, id: string): Promise<ReplayRow | null> {
  await db.query({
    name: 'cancel_replay',
    text: `update posthaste.replays r set state = 'cancelled', waiting = false, updated_at = now(), finished_at = now()
      where r.id = $2 and r.state = 'running' and ($1::text is null or r.tenant = $1)`,
    values: [tenant, id],
  });
  return getReplay(db, tenant, id);
}

export interface ReplayPage {
  state: 'running' | 'done' | 'cancelled' | 'stopped' | 'unknown';
  wait_ms: number; // until the next page may be made
  slept: string[] | null; // cancelled deliveries whose workflows should be told; a hint
}

/** Makes the next page, or says how long to wait for it. */
export async function replayPage(db: Db, id: string, aliveMs: number): Promise<ReplayPage> {
  const result = await db.query({
    name: 'replay_page',
    text: `select state, wait_ms, slept from posthaste.replay_page($1, $2 * interval '1 millisecond')`,
    values: [id, aliveMs],
  });
  return result.rows[0];
}

/** Counts what matches, once and before anything was moved. */
export async function replayCount(db: Db, id: string): Promise<void> {
  await db.query({ name: 'replay_count', text: 'select posthaste.replay_count($1)', values: [id] });
}

/** Goes on without a count. */
export async function skipReplayCount(db: Db, id: string): Promise<void> {
  await db.query({
    name: 'skip_replay_count',
    text: 'update posthaste.replays set counted = true where id = $1',
    values: [id],
  });
}

/** Replays of these shards that nobody pages; they count as looked after for aliveMs. */
export async function scanReplays(
  db: Db,
  shards: readonly number[],
  limit: number,
  aliveMs: number,
): Promise<{ id: string; tenant: string }[]> {
  const result = await db.query({
    name: 'scan_replays',
    text: `select id, tenant from posthaste.scan_replays($1, $2, $3 * interval '1 millisecond')`,
    values: [shards, limit, aliveMs],
  });
  return result.rows;
}

/** Whose endpoint it is and whether it takes anything; null: there is none. For Temporal's side, which knows ids only. */
export async function endpointOwner(
  db: Db,
  endpoint: string,
): Promise<{ tenant: string; state: string } | null> {
  const result = await db.query({
    name: 'endpoint_owner',
    text: 'select tenant, state from posthaste.endpoints where id = $1',
    values: [endpoint],
  });
  return result.rows[0] ?? null;
}
