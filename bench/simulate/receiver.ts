/**
 * Receivers that can be overloaded. `shed` serves its capacity and refuses the rest. `collapse` serves less the more it
 * is offered: C · max(0.05, 1 − ½(x − 1)) at x times its capacity. `fragile` collapses too, is cold after a restart
 * (20 % of its capacity, all of it after 2 minutes), and crashes for 60 s when offered twice its capacity for 5 s.
 * `bucket` and `window` limit on purpose: a token bucket, and a quota per calendar minute.
 */

export type ReceiverKind = 'shed' | 'collapse' | 'fragile' | 'bucket' | 'window';

export interface ReceiverPlan {
  readonly kind: ReceiverKind;
  readonly capacity: number; // requests per second
  /** Status of what is over its capacity. */
  readonly refuses: 503 | 429;
  /** Seconds of Retry-After on refusals; `rest`: until the quota starts anew; null: none. */
  readonly retryAfter: number | 'rest' | null;
  readonly down: { readonly fromMs: number; readonly toMs: number };
  /** What a down receiver does. */
  readonly downBy: 'refusing' | 'hanging';
}

export interface Answer {
  readonly status: number | 'refused' | 'timeout';
  readonly latencyMs: number;
  readonly retryAfterMs: number | null;
}

const WARM_UP_MS = 120_000;
const CRASH_MS = 60_000;

export class Receiver {
  readonly plan: ReceiverPlan;
  readonly #random: () => number;
  readonly #timeoutMs: number;
  readonly #tickMs: number;
  #recent: number[] = []; // offered in each tick of the last second
  #offered = 0;
  #tokens = 0;
  #warmFromMs = Number.NEGATIVE_INFINITY;
  #overSinceMs: number | null = null;
  #crashedUntilMs = Number.NEGATIVE_INFINITY;
  #minute = -1;
  #inMinute = 0;
  crashedMs = 0;

  constructor(plan: ReceiverPlan, timeoutMs: number, tickMs: number, random: () => number) {
    this.plan = plan;
    this.#timeoutMs = timeoutMs;
    this.#tickMs = tickMs;
    this.#random = random;
    this.#tokens = plan.capacity / 2;
  }

  isDown(nowMs: number): boolean {
    return (nowMs >= this.plan.down.fromMs && nowMs < this.plan.down.toMs) || nowMs < this.#crashedUntilMs;
  }

  #capacity(nowMs: number): number {
    if (this.plan.kind !== 'fragile') return this.plan.capacity;
    const warm = Math.min(1, 0.2 + (0.8 * (nowMs - this.#warmFromMs)) / WARM_UP_MS);
    return this.plan.capacity * warm;
  }

  /** Once per tick, before its requests. */
  tick(nowMs: number): void {
    const { kind, capacity, down } = this.plan;
    this.#recent.push(this.#offered);
    if (this.#recent.length > 1000 / this.#tickMs) this.#recent.shift();
    this.#offered = 0;
    if (nowMs >= down.fromMs && nowMs < down.toMs) this.#warmFromMs = down.toMs;
    if (nowMs < this.#crashedUntilMs) this.crashedMs += this.#tickMs;
    if (this.isDown(nowMs)) return;
    const now = this.#capacity(nowMs);
    const load = this.#recent.reduce((sum, count) => sum + count, 0) / now;
    const goodput =
      kind === 'collapse' || kind === 'fragile' ? Math.max(0.05, 1 - Math.max(0, load - 1) / 2) : 1;
    // Half a second's worth may come at once: requests of one tick are not spread evenly.
    const burst = kind === 'bucket' ? capacity : now / 2;
    this.#tokens = Math.min(burst, this.#tokens + (now * goodput * this.#tickMs) / 1000);
    if (kind !== 'fragile') return;
    if (load <= 2) this.#overSinceMs = null;
    else this.#overSinceMs ??= nowMs;
    if (this.#overSinceMs === null || nowMs - this.#overSinceMs < 5_000) return;
    this.#crashedUntilMs = nowMs + CRASH_MS;
    this.#warmFromMs = this.#crashedUntilMs;
    this.#overSinceMs = null;
  }

  answer(nowMs: number): Answer {
    this.#offered++;
    if (this.isDown(nowMs)) {
      if (this.plan.downBy === 'hanging')
        return { status: 'timeout', latencyMs: this.#timeoutMs, retryAfterMs: null };
      return { status: 'refused', latencyMs: 5, retryAfterMs: null };
    }
    const latencyMs = 40 + 80 * this.#random();
    if (this.#serves(nowMs)) return { status: 200, latencyMs, retryAfterMs: null };
    const { refuses, retryAfter } = this.plan;
    const rest = 60_000 - (nowMs % 60_000);
    // A header holds whole seconds.
    const retryAfterMs =
      retryAfter === 'rest' ? Math.ceil(rest / 1000) * 1000 : retryAfter && retryAfter * 1000;
    return { status: refuses, latencyMs: 20, retryAfterMs };
  }

  #serves(nowMs: number): boolean {
    if (this.plan.kind === 'window') {
      const minute = Math.floor(nowMs / 60_000);
      if (minute !== this.#minute) this.#inMinute = 0;
      this.#minute = minute;
      return ++this.#inMinute <= this.plan.capacity * 60;
    }
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
