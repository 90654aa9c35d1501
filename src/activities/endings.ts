/**
 * When groups that had to wait for a slow member may end. Those of some seconds, of which each had a member for a receiver
 * that hangs, come to their end together, when its requests time out; and what Temporal does to end a workflow would then
 * be missing to those that start. Nobody waits for the end of a group: its members are free before.
 */
import { sleep } from './sleep.ts';

const PER_SECOND = 3;
const MOST_MS = 20_000;

export interface Endings {
  /** Resolves when it is its turn, after 20 s at the latest, or when `stop` aborts. */
  turn(stop: AbortSignal): Promise<void>;
}

export function createEndings(): Endings {
  let nextAt = Number.NEGATIVE_INFINITY;
  return {
    turn(stop) {
      const now = performance.now();
      const at = Math.min(Math.max(now, nextAt), now + MOST_MS);
      nextAt = at + 1_000 / PER_SECOND;
      return sleep(at - now, stop);
    },
  };
}
