/**
 * The database's clock as this process sees it. Due times and deadlines are the database's; a worker whose own clock
 * is off, or jumps, must neither sign with a wrong time nor compute wrong due times. Runs on the monotonic clock
 * between samples, so a step of the system clock does not reach it.
 */
import type { Db } from './pool.ts';

export interface DbClock {
  /** Database time now, epoch milliseconds. */
  now(): number;
  /** Asks the database; keeps the best of a few samples. Throws when it can't be asked. */
  sync(): Promise<void>;
  /** How wrong now() may be, ms: half the round trip of the last good sample, and 0.1 ms per second since (100 ppm). */
  uncertaintyMs(): number;
}

const SAMPLES = 3;
const DRIFT = 1e-4;

export function createDbClock(db: Db): DbClock {
  let databaseMs = 0;
  let sampledAt = Number.NEGATIVE_INFINITY; // performance.now()
  let halfTrip = Number.POSITIVE_INFINITY;
  const uncertainty = (): number => halfTrip + (performance.now() - sampledAt) * DRIFT;
  return {
    now: () => databaseMs + (performance.now() - sampledAt),
    uncertaintyMs: uncertainty,
    async sync() {
      let best = { trip: Number.POSITIVE_INFINITY, at: 0, now: 0 };
      for (let i = 0; i < SAMPLES; i++) {
        const before = performance.now();
        const result = await db.query({
          name: 'clock',
          text: 'select (extract(epoch from clock_timestamp()) * 1000)::float8 as now',
        });
        const trip = performance.now() - before;
        if (trip < best.trip) best = { trip, at: before + trip / 2, now: result.rows[0].now };
      }
      // A sample taken on a busy machine is worse than an older one that has drifted a little.
      if (best.trip / 2 > uncertainty()) return;
      databaseMs = best.now;
      sampledAt = best.at;
      halfTrip = best.trip / 2;
    },
  };
}
