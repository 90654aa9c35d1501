/** Old days and what outlives them (migrations/functions/retention.sql has the rules). Called by src/relay/retention.ts. */
import type { Db } from './pool.ts';

/** The oldest day past its retention, as `2026-01-31`; null when there is none. */
export async function oldestDay(db: Db): Promise<string | null> {
  return (await db.query('select posthaste.oldest_day()::text as day')).rows[0].day;
}

/** Moves the events of one hour of the day that are still needed out of its partition; answers how many. */
export async function keepBodies(db: Db, day: string, hour: number): Promise<number> {
  const result = await db.query({
    text: `select posthaste.keep_bodies(h.hour, h.hour + interval '1 hour') as moved
      from (select ($1::date::timestamp + $2 * interval '1 hour') at time zone 'UTC' as hour) h`,
    values: [day, hour],
  });
  return result.rows[0].moved;
}

/** Drops the day's partitions. False: the tables were in use; nothing was done. */
export async function dropDay(db: Db, day: string): Promise<boolean> {
  return (await db.query('select posthaste.drop_day($1) as dropped', [day])).rows[0].dropped;
}

/** Deletes up to `limit` old rows of each kind that sit in no partition of their day; answers how many. */
export async function purgeOld(db: Db, limit: number): Promise<number> {
  return (await db.query('select posthaste.purge_old($1) as gone', [limit])).rows[0].gone;
}
