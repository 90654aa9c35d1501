/** What results do to endpoints. Called by src/process.ts as attempts are recorded. */
import type { Db } from './pool.ts';

/**
 * The receiver said 410 to a request made under this revision: no more deliveries until someone enables the endpoint.
 * Answers whether it was active and still the same; an endpoint edited meanwhile is left alone.
 */
export async function disableGone(db: Db, endpoint: string, revision: number): Promise<boolean> {
  const result = await db.query({
    name: 'disable_gone',
    text: `update posthaste.endpoints set state = 'disabled', disabled_reason = 'gone', revision = revision + 1, updated_at = now()
      where id = $1 and revision = $2 and state in ('active', 'paused')`,
    values: [endpoint, revision],
  });
  return result.rowCount === 1;
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
