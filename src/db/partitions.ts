/** Day partitions, 14 days ahead. Called by the relay every ten minutes, and by `posthaste migrate`. */
import { type Pool, withTransaction } from './pool.ts';

/** Makes what is missing; answers how many. Gives up quickly when a lock is not to be had: the next call tries again. */
export async function ensurePartitions(pool: Pool): Promise<number> {
  return withTransaction(pool, async (client) => {
    await client.query(`set local lock_timeout = '500ms'`);
    return (await client.query('select posthaste.ensure_partitions() as made')).rows[0].made;
  });
}
