/**
 * After an endpoint was disabled or deleted its unfinished deliveries must end. The scanner ends them; this tells it
 * to look now, a thousand rows at a time. Most endpoints are done before the answer; the rest of a huge backlog goes
 * on behind it, and what a crash leaves over ends when the row is due.
 */
import { scanSoon } from '../db/endpoints.ts';
import type { Pool } from '../db/pool.ts';
import type { Log } from '../log.ts';

const BATCH = 1_000;
const ROUNDS_BEFORE_ANSWER = 10;

export interface Scans {
  endWorkOf(endpoints: readonly string[]): Promise<void>;
  /** Waits for what still goes on. */
  close(): Promise<void>;
}

export function createScans(deps: { db: Pool; log: Log }): Scans {
  const running = new Set<Promise<void>>();
  let closing = false;

  /** True when nothing is left. */
  const rounds = async (endpoint: string, count: number): Promise<boolean> => {
    for (let i = 0; i < count && !closing; i++) {
      if ((await scanSoon(deps.db, endpoint, BATCH)) < BATCH) return true;
    }
    return false;
  };

  return {
    async endWorkOf(endpoints) {
      try {
        const left: string[] = [];
        for (const [index, endpoint] of endpoints.entries()) {
          const done = index < 100 && (await rounds(endpoint, ROUNDS_BEFORE_ANSWER));
          if (!done) left.push(endpoint);
        }
        if (left.length === 0) return;
        const rest = (async () => {
          for (const endpoint of left) await rounds(endpoint, Number.POSITIVE_INFINITY);
        })()
          .catch((error) => deps.log.warn({ err: error }, 'ending deliveries goes on when they are due'))
          .finally(() => running.delete(rest));
        running.add(rest);
      } catch (error) {
        // The change itself is committed: failing the request would be wrong.
        deps.log.warn({ err: error }, 'ending deliveries goes on when they are due');
      }
    },
    async close() {
      closing = true;
      await Promise.all(running);
    },
  };
}
