/**
 * One endpoint under a simulated clock: what the SQL, the pump and the health step do to its rows, around the same pure
 * functions (`permits`, `split`, `reduceHealth`, `waitMs`) that the product runs. Ticks of 100 ms.
 */
import { type Fact, type HealthState, reduceHealth, type Seen } from '../../src/domain/health.ts';
import { permits, split } from '../../src/domain/permits.ts';
import { DEFAULT_POLICY } from '../../src/domain/retry-policy.ts';
import { waitMs } from '../../src/domain/schedule.ts';
import { poisson, randomFrom } from './random.ts';
import { type Answer, Receiver, type ReceiverPlan } from './receiver.ts';
import { Calendar, createdOf, Rows, rowOf, stepOf } from './rows.ts';

export const TICK_MS = 100;
const HELD_CAP = 10_000;
const RATE_MS = 30_000;
const CATCH_UP_SHARE = 0.1;

/**
 * `posthaste`; `release_all`: the same breaker, but everything that waits goes out when it closes;
 * `backoff`: each delivery by its own schedule and nothing else.
 */
export type Policy = 'posthaste' | 'release_all' | 'backoff';

export interface Scenario {
  readonly policy: Policy;
  readonly offered: number; // events per second
  readonly receiver: ReceiverPlan;
  readonly cap: number;
  readonly seed: number;
  readonly timeoutMs: number;
}

interface Flight {
  readonly row: number;
  readonly startedMs: number;
  readonly epoch: number;
  readonly answer: Answer;
}

/** What an observer sees. */
export interface Observer {
  sent(nowMs: number): void;
  delivered(createdMs: number, nowMs: number): void;
  edge(kind: string, nowMs: number): void;
  /** A cooldown begins. */
  cooldown(nowMs: number, lengthMs: number): void;
}

export class World {
  readonly scenario: Scenario;
  readonly receiver: Receiver;
  readonly #observer: Observer;
  readonly #random: () => number;
  readonly #live = new Rows();
  readonly #backlog = new Rows();
  readonly #retries = new Calendar<number>();
  readonly #flights = new Calendar<Flight>();
  #inbox: Fact[] = [];
  #health: HealthState | null = null;
  #wakeAtMs: number | null = null;
  // The endpoint's row.
  #mode: 'shared' | 'pump' = 'shared';
  #epoch = 0;
  #inFlight = 0;
  #oks = 0;
  #failsInRow = 0;
  #lastSuccessAtMs: number | null = null;
  #lastResultMs = 0;
  #sendRate = 0;
  #pauseUntilMs: number | null = null;
  #probeAtMs: number | null = null;
  #armedMs: number | null = null;
  #rate: number | null = null;
  #tokens = 0;
  #tokensAtMs = 0;
  #liveSinceMs: number | null = null;
  #keepPumpUntilMs: number | null = null;
  #pumped = 0;
  #deniedSinceMs: number | null = null;
  #counter = 0;
  nowMs = 0;
  created = 0;

  constructor(scenario: Scenario, observer: Observer) {
    this.scenario = scenario;
    this.#observer = observer;
    this.#random = randomFrom(scenario.seed);
    this.receiver = new Receiver(scenario.receiver, scenario.timeoutMs, TICK_MS, this.#random);
  }

  get health(): string {
    return this.#health?.health ?? 'closed';
  }

  get rate(): number | null {
    return this.#rate;
  }

  get waiting(): number {
    return this.#live.size + this.#backlog.size;
  }

  tick(): void {
    const now = this.nowMs;
    this.receiver.tick(now);
    const arrivals = poisson((this.scenario.offered * TICK_MS) / 1000, this.#random);
    this.created += arrivals;
    for (let i = 0; i < arrivals; i++) this.#live.add(rowOf(now, 0));
    for (const row of this.#retries.take(now / TICK_MS)) this.#wait(row);
    this.#record(now);
    if (this.scenario.policy !== 'backoff') this.#healthStep(now);
    this.#send(now);
    if (this.scenario.policy !== 'backoff') this.#changeMode(now);
    this.nowMs += TICK_MS;
  }

  #wait(row: number): void {
    const live = this.#liveSinceMs === null || createdOf(row) >= this.#liveSinceMs;
    (live ? this.#live : this.#backlog).add(row);
  }

  #record(now: number): void {
    const ended = this.#flights.take(now / TICK_MS);
    this.#sendRate = this.#sendRate * Math.exp(-TICK_MS / RATE_MS) + (1000 * ended.length) / RATE_MS;
    // As in the product, where each batch belongs to one claim call.
    for (const epoch of new Set(ended.map((flight) => flight.epoch)))
      this.#recordBatch(
        now,
        epoch,
        ended.filter((flight) => flight.epoch === epoch),
      );
  }

  #recordBatch(now: number, epoch: number, ended: readonly Flight[]): void {
    let [ok, fail, throttled, timeouts, slow, startedMs, okStartedMs, pause] = [0, 0, 0, 0, 0, 0, 0, 0];
    const deliveries = new Set<string>();
    for (const { row, startedMs: started, answer } of ended) {
      if (answer.latencyMs > 2_000) slow++;
      if (answer.status === 200) {
        ok++;
        okStartedMs = Math.max(okStartedMs, started);
        this.#observer.delivered(createdOf(row), now);
        continue;
      }
      startedMs = Math.max(startedMs, started);
      if (answer.status === 429) throttled++;
      else fail++;
      if (answer.status === 'timeout') timeouts++;
      if (deliveries.size < 5) deliveries.add(`${row}`);
      if (answer.retryAfterMs !== null) pause = Math.max(pause, now + answer.retryAfterMs);
      this.#retry(row, now, answer);
    }
    this.#inFlight -= ended.length;
    this.#lastResultMs = now;
    this.#oks += ok;
    if (ok > 0) this.#lastSuccessAtMs = now;
    this.#failsInRow = ok > 0 ? 0 : this.#failsInRow + fail;
    if (this.scenario.policy === 'backoff') return;
    if (pause > 0) this.#pauseUntilMs = Math.max(this.#pauseUntilMs ?? 0, pause);
    const plain = ok === ended.length && slow === 0;
    if (plain && this.health === 'closed' && this.#rate === null && this.#mode === 'shared') return;
    this.#fact(now, {
      epoch,
      startedMs,
      okStartedMs,
      ok,
      fail,
      throttled,
      timeouts,
      slow,
      deliveries: [...deliveries],
      pauseUntilMs: pause > 0 ? pause : null,
    });
  }

  #fact(atMs: number, change: Partial<Fact>): void {
    this.#inbox.push({
      atMs,
      epoch: this.#epoch,
      startedMs: 0,
      ok: 0,
      fail: 0,
      timeouts: 0,
      throttled: 0,
      config: 0,
      neutral: 0,
      slow: 0,
      lost: 0,
      deliveries: [],
      lastStatus: null,
      lastClass: 'http_503',
      pauseUntilMs: null,
      gone: false,
      edit: null,
      ...change,
    });
  }

  #retry(row: number, now: number, answer: Answer): void {
    const step = stepOf(row);
    const pace = answer.status === 429 && answer.retryAfterMs === null ? 'slower' : 'normal';
    const own = waitMs(DEFAULT_POLICY, step, `${this.scenario.seed}:${this.#counter++}`, pace) ?? 0;
    const wait = Math.max(own, answer.retryAfterMs ?? 0);
    this.#retries.add(Math.ceil((now + wait) / TICK_MS), rowOf(createdOf(row), step + 1));
  }

  #healthStep(now: number): void {
    if (this.#inbox.length === 0 && (this.#wakeAtMs === null || now < this.#wakeAtMs)) return;
    const seen: Seen = {
      endpoint: `ep_${this.scenario.seed}`,
      nowMs: now,
      epoch: this.#epoch,
      mode: this.#mode,
      oks: this.#oks,
      sendRate: this.#sendRate,
      lastSuccessAtMs: this.#lastSuccessAtMs,
      operator: 'active',
      cap: this.scenario.cap,
      timeoutMs: this.scenario.timeoutMs,
      pauseUntilMs: this.#pauseUntilMs,
      held: Math.min(HELD_CAP, this.waiting),
      failsInRow: this.#failsInRow,
    };
    const { state, gate, edges, wakeAtMs } = reduceHealth(this.#health, seen, this.#inbox, { frozen: false });
    this.#inbox = [];
    this.#health = state;
    this.#wakeAtMs = wakeAtMs;
    for (const edge of edges) this.#observer.edge(edge.kind, now);
    if (gate.mode !== this.#mode) {
      this.#mode = gate.mode;
      this.#epoch++;
    }
    if (gate.probeAtMs !== this.#armedMs) {
      this.#armedMs = gate.probeAtMs;
      this.#probeAtMs = gate.probeAtMs;
      if (gate.probeAtMs !== null && gate.probeAtMs > now) this.#observer.cooldown(now, gate.probeAtMs - now);
    }
    this.#rate = gate.rate;
    this.#pauseUntilMs = gate.pauseUntilMs;
    this.#keepPumpUntilMs = gate.keepPumpUntilMs;
    if (gate.resetFailsInRow) this.#failsInRow = 0;
    if (gate.resetTokens) {
      this.#tokens = 0;
      this.#tokensAtMs = Math.max(now, gate.pauseUntilMs ?? 0);
    }
    if (gate.liveSinceMs !== this.#liveSinceMs) this.#divide(gate.liveSinceMs);
  }

  /** Rows move between live and backlog when the border does. */
  #divide(liveSinceMs: number | null): void {
    this.#liveSinceMs = liveSinceMs;
    if (liveSinceMs === null) {
      while (this.#backlog.size > 0) this.#live.add(this.#backlog.take()!);
      return;
    }
    while (this.#live.size > 0 && createdOf(this.#live.first!) < liveSinceMs)
      this.#backlog.add(this.#live.take()!);
  }

  #slots(now: number): number {
    if (this.scenario.policy === 'backoff') return this.waiting;
    if (this.scenario.policy === 'release_all' && this.#probeAtMs === null) return this.waiting;
    const silentMs = this.#inFlight > 0 ? now - this.#lastResultMs : 0;
    const granted = permits(
      {
        cap: this.scenario.cap,
        inFlight: this.#inFlight,
        failsInRow: this.#failsInRow,
        silentMs,
        probeAtMs: this.#probeAtMs,
        rate: this.#rate,
        tokens: this.#tokens,
        tokensAtMs: this.#tokensAtMs,
        pauseUntilMs: this.#pauseUntilMs,
      },
      now,
    );
    const taken = Math.min(granted.slots, this.waiting);
    if (this.#probeAtMs !== null) {
      if (taken > 0) this.#probeAtMs = Number.POSITIVE_INFINITY;
    } else if (this.#rate !== null && now >= this.#tokensAtMs) {
      this.#tokens = granted.tokens - taken;
      this.#tokensAtMs = now;
    }
    return taken;
  }

  #send(now: number): void {
    const take = this.#slots(now);
    if (take > 0 && this.#inFlight === 0) this.#lastResultMs = now;
    const shares = split(take, this.#live.size, this.#backlog.size, this.#pumped, CATCH_UP_SHARE);
    this.#pumped += take;
    for (const [rows, count] of [
      [this.#live, shares.live],
      [this.#backlog, shares.backlog],
    ] as const)
      for (let i = 0; i < count; i++) this.#post(rows.take()!, now);
    this.#deniedSinceMs = this.waiting === 0 ? null : (this.#deniedSinceMs ?? now);
  }

  #post(row: number, now: number): void {
    const answer = this.receiver.answer(now);
    this.#inFlight++;
    this.#observer.sent(now);
    const tick = Math.ceil((now + answer.latencyMs) / TICK_MS);
    this.#flights.add(tick, { row, startedMs: now, epoch: this.#epoch, answer });
  }

  /** What claims and the pump do to the mode by themselves. */
  #changeMode(now: number): void {
    const denied = this.#deniedSinceMs !== null && now - this.#deniedSinceMs >= 1_000;
    if (this.#mode === 'shared' && denied) {
      this.#mode = 'pump';
      this.#epoch++;
      this.#fact(now, { edit: 'overloaded' });
    } else if (this.#mode === 'pump') {
      if (this.#probeAtMs !== null || (this.#pauseUntilMs ?? 0) > now) return;
      if ((this.#keepPumpUntilMs ?? 0) > now || this.waiting > 500) return;
      const oldest = Math.min(this.#live.first ?? Infinity, this.#backlog.first ?? Infinity);
      if (now - createdOf(oldest) > 1_000) return;
      this.#mode = 'shared';
      this.#epoch++;
      this.#fact(now, { edit: 'drained' });
    }
  }
}
