/** Inputs of the health reducer for tests: what an ordinary endpoint looks like, and one that lives through steps. */
import {
  type Fact,
  type HealthState,
  type HealthStep,
  reduceHealth,
  type Seen,
} from '../../src/domain/health.ts';

/** Some Monday. */
export const T0 = 1_800_000_000_000;

export const seenAt = (nowMs: number, change: Partial<Seen> = {}): Seen => ({
  endpoint: 'ep_1',
  nowMs,
  epoch: 1,
  mode: 'shared',
  oks: 0,
  sendRate: 0,
  lastSuccessAtMs: null,
  operator: 'active',
  cap: 10,
  timeoutMs: 15_000,
  pauseUntilMs: null,
  held: 0,
  ...change,
});

export const factAt = (atMs: number, change: Partial<Fact> = {}): Fact => ({
  atMs,
  epoch: 1,
  startedMs: atMs - 100,
  ok: 0,
  fail: 0,
  timeouts: 0,
  throttled: 0,
  config: 0,
  neutral: 0,
  slow: 0,
  lost: 0,
  deliveries: [],
  lastStatus: 503,
  lastClass: 'http_503',
  pauseUntilMs: null,
  gone: false,
  edit: null,
  ...change,
});

/** An endpoint whose rows follow the reducer, as the health step makes them. Times are seconds since T0. */
export class Subject {
  state: HealthState | null = null;
  last: HealthStep | null = null;
  seen: Seen;
  edges: string[] = [];

  constructor(change: Partial<Seen> = {}) {
    this.seen = seenAt(T0, { held: 1_000, ...change });
  }

  /** One health step; `facts` are relative to its time unless they say otherwise. */
  step(second: number, facts: Partial<Fact>[] = [], change: Partial<Seen> = {}, frozen = false): HealthStep {
    const nowMs = T0 + second * 1000;
    const full = facts.map((fact) => factAt(nowMs, { epoch: this.seen.epoch, ...fact }));
    const oks = full.reduce((sum, fact) => sum + fact.ok, 0);
    const lastOk = oks > 0 ? nowMs : this.seen.lastSuccessAtMs;
    this.seen = { ...this.seen, nowMs, oks: this.seen.oks + oks, lastSuccessAtMs: lastOk, ...change };
    const step = reduceHealth(this.state, this.seen, full, { frozen });
    const epoch = step.gate.mode === this.seen.mode ? this.seen.epoch : this.seen.epoch + 1;
    this.seen = { ...this.seen, mode: step.gate.mode, epoch, pauseUntilMs: step.gate.pauseUntilMs };
    this.state = JSON.parse(JSON.stringify(step.state));
    this.last = step;
    this.edges.push(...step.edges.map((edge) => edge.kind));
    return step;
  }

  /** Twenty failures in a row. */
  trip(second: number): HealthStep {
    return this.step(second, [{ fail: 20, deliveries: ['a', 'b', 'c'] }]);
  }

  /** Seconds since T0 of the next probe. */
  get probeAt(): number {
    return ((this.last?.gate.probeAtMs ?? Number.NaN) - T0) / 1000;
  }

  /** A probe at its time, answered 200 ms later. */
  probe(answer: Partial<Fact>, afterSeconds = 0): HealthStep {
    const start = this.probeAt + afterSeconds;
    const startedMs = T0 + start * 1000;
    return this.step(start + 0.2, [{ startedMs, okStartedMs: startedMs, ...answer }]);
  }
}
