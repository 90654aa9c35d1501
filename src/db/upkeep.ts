/** Figures over all endpoints and tenants. */
import type { Db } from './pool.ts';

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
