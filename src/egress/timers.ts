/**
 * Timers that judge a peer only by time it was really given. A process that was frozen (SIGSTOP, a paused virtual
 * machine, a starved core) finds its timers passed and the peer's answers unread in its sockets.
 */

/** A timer that comes this much too late was not held up by ordinary work. Milliseconds. */
const FROZEN_MS = 1_000;

/** Was this process frozen, if a timer set for `dueAt` (of performance.now()) runs now? */
export function wasFrozen(dueAt: number): boolean {
  return performance.now() - dueAt > FROZEN_MS;
}

/**
 * Calls `late` after `ms`, unless cleared. What has arrived by then is read first; and a process that was frozen
 * gives the peer the whole time once more.
 */
export class PeerTimer {
  #timer: NodeJS.Timeout;
  #immediate: NodeJS.Immediate | undefined;
  #again = false;

  constructor(ms: number, late: () => void) {
    const expire = (dueAt: number): void => {
      this.#immediate = setImmediate(() => {
        if (this.#again || !wasFrozen(dueAt)) {
          late();
          return;
        }
        this.#again = true;
        this.#timer = setTimeout(expire, ms, performance.now() + ms);
      });
    };
    this.#timer = setTimeout(expire, ms, performance.now() + ms);
  }

  clear(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }
}
