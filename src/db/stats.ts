/** Statistics of one endpoint, each read bounded: the newest attempts of the range, the oldest of what waits. */
import type { Db } from './pool.ts';

/** Rows looked at, at most, by each of the reads below. */
export const STATS_LIMIT = 10_000;

export interface AttemptStats {
  total: number;
  /** When the oldest attempt looked at began; null: none. */
  oldest: Date | null;
  by_class: Record<string, number>;
  p50: number | null; // ms
  p95: number | null;
}

/** Of the newest STATS_LIMIT attempts that began in the range. Index-only: migrations/0022_stats.sql. */
export async function attemptStats(
  db: Db,
  endpoint: string,
  since: Date,
  until: Date,
): Promise<AttemptStats> {
  const result = await db.query({
    name: 'attempt_stats',
    text: `with a as materialized (
        select class, duration_ms, started_at from posthaste.attempts
        where endpoint = $1 and started_at >= $2 and started_at < $3 order by started_at desc limit $4
      )
      select (select count(*) from a) as total, (select min(started_at) from a) as oldest,
        (select coalesce(json_object_agg(x.class, x.attempts), '{}') from (select class, count(*) as attempts from a group by class) x) as by_class,
        percentile_disc(0.5) within group (order by duration_ms) as p50, percentile_disc(0.95) within group (order by duration_ms) as p95
      from a`,
    values: [endpoint, since, until, STATS_LIMIT],
  });
  return result.rows[0];
}

export interface WaitingStats {
  ready: number;
  sending: number;
  retrying: number;
  held: number;
  oldest: Date | null;
}

/** Of the oldest STATS_LIMIT unfinished deliveries; ids are in the order of time. */
export async function waitingStats(db: Db, endpoint: string): Promise<WaitingStats> {
  const result = await db.query({
    name: 'waiting_stats',
    text: `with w as materialized (
        select state, created_at from posthaste.work where endpoint = $1 and kind <> 'test' order by delivery limit $2
      )
      select count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'sending') as sending,
        count(*) filter (where state = 'retrying') as retrying, count(*) filter (where state = 'held') as held, min(created_at) as oldest
      from w`,
    values: [endpoint, STATS_LIMIT],
  });
  return result.rows[0];
}

/** Deaths in the range, counted to STATS_LIMIT. */
export async function deadLetterCount(db: Db, endpoint: string, since: Date): Promise<number> {
  const result = await db.query({
    name: 'dead_letter_count',
    text: `select count(*) as dead from (select from posthaste.dead_letters x join posthaste.endpoint_state s on s.tenant = x.tenant and s.endpoint = x.endpoint
        where s.endpoint = $1 and x.died_at >= $2 limit $3) y`,
    values: [endpoint, since, STATS_LIMIT],
  });
  return result.rows[0].dead;
}
