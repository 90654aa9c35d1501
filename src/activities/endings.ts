/**
 * When groups that had to wait for a slow member may end. Those of some seconds, of which each had a member for a receiver
 * that hangs, come to their end together, when its requests time out; and what Temporal does to end a workflow would then
 * be missing to those that start. Nobody waits for the end of a group: its members are free before.
 */
import { sleep } from './sleep.ts';

const PER_SECOND = 3;
/** Beyond it they end at once: each holds one of the worker's places for activities. */
const MOST_WAITING = 30;

export interface Endings {
  /** Resolves when it is its turn, or at once when many wait already or `stop` aborts. */
  turn(stop: AbortSignal): Promise<void>;
}

export function createEndings(): Endings {
  let nextAt = Number.NEGATIVE_INFINITY;
  let waiting = 0;
  return {
    async turn(stop) {
      if (waiting >= MOST_WAITING) return;
      const now = performance.now();
      const at = Math.max(now, nextAt);
      nextAt = at + 1_000 / PER_SECOND;
      waiting++;
      await sleep(at - now, stop);
      waiting--;
    },
  };
}
