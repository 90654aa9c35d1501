/**
 * The database's clock as this process sees it. Due times and deadlines are the database's; a worker whose own clock
 * is off must neither sign with a wrong time nor compute wrong due times.
 */
import type { Db } from './pool.ts';

export interface DbClock {
  /** Database time now, epoch milliseconds. */
  now(): number;
  /** Asks the database; keeps the best of a few samples. Throws when it can't be asked. */
  sync(): Promise<void>;
  /** Half the round trip of the best sample, ms: how wrong now() may be. Infinity before the first sync. */
  uncertaintyMs(): number;
}

export function createDbClock(db: Db): DbClock {
  let offset = 0;
  let uncertainty = Number.POSITIVE_INFINITY;
  return {
    now: () => Date.now() + offset,
    uncertaintyMs: () => uncertainty,
    async sync() {
      let best = Number.POSITIVE_INFINITY;
      for (let i = 0; i < 3; i++) {
        const before = performance.now();
        const result = await db.query({
          name: 'clock',
          text: 'select (extract(epoch from clock_timestamp()) * 1000)::float8 as now',
        });
        const trip = performance.now() - before;
        if (trip < best) {
          best = trip;
          const measured = result.rows[0].now + trip / 2 - Date.now();
          // Differences within the round trip are noise: the local clock is then as good.
          offset = Math.abs(measured) <= trip ? 0 : measured;
          uncertainty = trip / 2;
        }
      }
    },
  };
}
