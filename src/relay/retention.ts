/**
 * The end of old days: every day older than the retention goes, oldest first, in a transaction of its own. Called
 * hourly by upkeep.ts of every relay; the database lets one at a time do it. A crash leaves whole days.
 */
import type { Pool } from '../db/pool.ts';
import { dropDay, keepBodies, oldestDay, purgeOld } from '../db/retention.ts';
import type { Log } from '../log.ts';

const PURGE_LIMIT = 5_000;

export async function retire(db: Pool, log: Log): Promise<void> {
  for (;;) {
    const day = await oldestDay(db);
    if (day === null) break;
    // The bulk before the locks, in statements that end soon whatever the day holds.
    let kept = 0;
    for (let hour = 0; hour < 24; hour++) kept += await keepBodies(db, day, hour);
    if (!(await dropDay(db, day))) {
      log.info({ day }, 'a day past its retention is still in use; it is dropped at a later hour');
      break;
    }
    log.info({ day, events_kept: kept }, 'a day past its retention was dropped');
  }
  while ((await purgeOld(db, PURGE_LIMIT)) >= PURGE_LIMIT);
}
