/** Day partitions, 14 days ahead. Called by the relay every ten minutes; `posthaste migrate` does the same. */
import type { Db } from './pool.ts';

/** Makes what is missing; answers how many. Tables in use for long are left to the next call. */
export async function ensurePartitions(db: Db): Promise<number> {
  return (await db.query('select posthaste.ensure_partitions() as made')).rows[0].made;
}
