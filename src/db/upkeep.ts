/** Figures over all endpoints and tenants, and what the planner is told. */
import type { Db } from './pool.ts';

/**
 * Tells the planner that `work` has grown to `unfinished` rows or more, and the outbox to `waiting`, if it does not know
 * (migrations/functions/statistics.sql).
 */
export async function refreshStatistics(db: Db, unfinished: number, waiting: number): Promise<boolean> {
  const result = await db.query({
    name: 'refresh_statistics',
    text: 'select posthaste.refresh_statistics($1, $2) as refreshed',
    values: [unfinished, waiting],
  });
  return result.rows[0].refreshed;
}

/** Weights of tenants that have another than 1. */
export async function loadWeights(db: Db): Promise<Map<string, number>> {
  const result = await db.query({
    name: 'load_weights',
    text: 'select id, weight from posthaste.tenants where weight <> 1 and deleted_at is null',
  });
  return new Map(result.rows.map((row) => [row.id, row.weight]));
}

/** Unfinished deliveries of these shards. Walks the table: for a gauge, not for decisions. */
export async function countWork(db: Db, shards: readonly number[]): Promise<number> {
  const result = await db.query({
    name: 'count_work',
    text: 'select count(*) as rows from posthaste.work where shard = any ($1)',
    values: [shards],
  });
  return result.rows[0].rows;
}

/** Endpoints that are not disabled by health, `paused` for those an operator paused. Walks the tables: for a gauge. */
export async function countEndpoints(db: Db, shards: readonly number[]): Promise<Record<string, number>> {
  const result = await db.query({
    name: 'count_endpoints',
    text: `select case when e.state = 'paused' then 'paused' else s.health end as health, count(*) as endpoints
      from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint and e.state in ('active', 'paused')
      where s.shard = any ($1) group by 1`,
    values: [shards],
  });
  return Object.fromEntries(result.rows.map((row) => [row.health, row.endpoints]));
}

/** Deliveries that wait for their endpoint. */
export async function countHeld(db: Db, shards: readonly number[]): Promise<number> {
  const result = await db.query({
    name: 'count_held',
    text: 'select count(*) as held from posthaste.work where held_deadline is not null and shard = any ($1)',
    values: [shards],
  });
  return result.rows[0].held;
}
