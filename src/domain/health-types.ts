/**
 * What the health reducer reads and writes. Types only; health.ts re-exports them. Times are epoch milliseconds of the
 * database's clock, rates are requests per second.
 */

/**
 * `closed`: healthy. `open`: its breaker is open, nothing goes out before the next probe. `half_open`: probing.
 * `recovering`: sends at a growing rate until nothing waits. `misconfigured`: answers 4xx only; a sparse probe.
 */
export type Health = 'closed' | 'open' | 'half_open' | 'recovering' | 'misconfigured';

/** The endpoint's rows as the health step finds them. */
export interface Seen {
  readonly endpoint: string;
  readonly nowMs: number;
  readonly epoch: number; // changes with the mode
  readonly mode: 'shared' | 'pump';
  readonly oks: number; // 2xx ever
  readonly sendRate: number; // finished requests per second, EWMA of 30 s
  /** The same over the last 2 s, if known: what the endpoint was really sent when it first says 429. */
  readonly recentRate?: number;
  /** New deliveries per second over the last 10 s, if known: what a return to health has to keep up with. */
  readonly arrivalRate?: number;
  readonly lastSuccessAtMs: number | null;
  readonly operator: 'active' | 'paused' | 'disabled';
  readonly cap: number;
  readonly timeoutMs: number;
  readonly pauseUntilMs: number | null;
  readonly held: number; // rows that wait for the endpoint; may be an estimate that ends at 10,000
  /** Column fails_in_row, by which claims stop at 20: given, the reducer never leaves an endpoint stopped unjudged. */
  readonly failsInRow?: number;
}

/** What one recording batch says about one endpoint. */
export interface Fact {
  readonly atMs: number;
  readonly epoch: number; // of the claims
  readonly startedMs: number; // latest start among the failed and throttled requests
  /** Latest start among the 2xx, if known: tells a probe's success from that of a request sent before the trip. */
  readonly okStartedMs?: number;
  /** A test send succeeded: as good as a probe, whenever that would have been due. */
  readonly testOk?: boolean;
  readonly ok: number;
  readonly fail: number;
  readonly timeouts: number; // part of `fail`
  readonly throttled: number; // 429
  readonly config: number; // 4xx but 408, 410, 425, 429
  readonly neutral: number; // says nothing about the receiver
  readonly slow: number; // took more than 2 s, whatever the answer
  readonly lost: number; // worker_lost
  readonly deliveries: readonly string[]; // at most 5 distinct ones that failed or were throttled
  readonly lastStatus: number | null;
  readonly lastClass: string;
  readonly pauseUntilMs: number | null; // from a Retry-After of 429 or 503
  readonly gone: boolean; // 410
  /** `drained`: the pump emptied and the mode is shared again. `overloaded`: denied a slot for 1 s, the mode is pump. */
  readonly edit: null | 'edit' | 'enable' | 'resume' | 'pause' | 'disable' | 'drained' | 'overloaded';
}

/** What claims read. Written with the state, in one compare-and-swap. */
export interface Gate {
  readonly mode: 'shared' | 'pump';
  /**
   * null: not gated. A time: one probe at a time from then on. Write the column when this differs from what the last
   * step wrote: a granted probe has put it out of reach, and only a new value means "again". (Writing it always is
   * safe too, because a probe needs an empty flight; it can only cost a probe more.)
   */
  readonly probeAtMs: number | null;
  readonly rate: number | null; // null: unlimited
  /** The pause as it should be; null: none. A later one recorded meanwhile stands, unless `resume` was among the facts. */
  readonly pauseUntilMs: number | null;
  readonly keepPumpUntilMs: number | null; // the pump does not leave before; nor while probeAtMs is set
  readonly liveSinceMs: number | null; // rows created since are live, older ones are backlog; null: all are live
  readonly resetFailsInRow: boolean; // the failures were ours
  /** Empty the bucket: tokens = 0, tokens_at = the later of now and the end of the pause. */
  readonly resetTokens: boolean;
}

export type EdgeKind =
  | 'failing' // first trip since it was last well: for the customer, once per episode
  | 'opened' // the breaker opened
  | 'closed' // the breaker closed, recovery begins
  | 'recovered' // nothing waits any more, or the first 2xx after a notice: ends the episode
  | 'misconfigured'
  | 'paused_long'
  | 'disabled'
  | 'notice_24h'
  | 'notice_72h';

/** Something to tell someone, once. */
export interface Edge {
  readonly kind: EdgeKind;
  readonly atMs: number;
  readonly reason: string; // a rule in words, e.g. `20 failures in a row`
  readonly lastStatus: number | null; // of the last failure; null: unknown, none with a status, or good news
  readonly lastClass: string | null;
  readonly sinceMs: number | null; // of the trouble
  readonly untilMs: number | null; // next probe, or end of the pause
  readonly held: number;
}

export interface HealthStep {
  readonly state: HealthState;
  readonly gate: Gate;
  readonly edges: Edge[];
  readonly wakeAtMs: number | null; // reduce again then, facts or not
  readonly disable: null | 'gone' | 'failing';
}

/** Ten seconds of results. */
export interface Bucket {
  startMs: number;
  ok: number;
  fail: number;
  throttled: number;
  all: number; // with those that say nothing about health
  slow: number;
}

/** The rate while an endpoint may not be sent to without limit. */
export interface Pace {
  phase: 'double' | 'percent' | 'cubic' | 'fading';
  rate: number;
  target: number; // where doubling ends
  congested: number; // W: the rate at the last congestion
  beta: number;
  grownMs: number; // time since the congestion in which work waited
  decreasedMs: number; // requests started before do not count as congestion again
  decreases: number;
  taken: boolean; // a request sent since the decrease was taken
  refusals: number; // times that nothing was, in a row
  recent: { second: number; ok: number; fail: number; throttled: number }[];
  fadesMs: number | null; // end of `fading`
}

/** Kept as JSON between steps. Null for an endpoint that never failed. */
export interface HealthState {
  v: 1;
  health: Health;
  sinceMs: number;
  steppedMs: number;
  mode: 'shared' | 'pump'; // as last written
  oks: number; // Seen.oks of the last step
  okCarry: number; // 2xx that facts reported ahead of the counter (negative), or 0
  window: Bucket[];
  /** Failures since the last 2xx, of this epoch. */
  run: { sinceMs: number | null; fails: number; throttled: number; deliveries: string[] };
  config: { sinceMs: number | null; count: number };
  k: number; // exponent of the next cooldown
  kSinceMs: number; // decays from here
  opens: number; // openings and re-openings ever: the jitter's key
  outageSinceMs: number | null; // the trip of this outage
  cause: 'failures' | 'config' | null; // why it is gated by probes
  probeAtMs: number | null;
  successes: number; // of probes, in a row
  sparse: number; // probes since it was found misconfigured
  before: number; // rate before the outage or pause
  pace: Pace | null;
  liveSinceMs: number | null;
  keepPumpUntilMs: number | null;
  longPauseUntilMs: number | null; // end of the pause that was announced
  /** No success since; counts every answer but 2xx, faults of ours excepted. */
  clock: { sinceMs: number | null; attempts: number; noticed: 0 | 24 | 72; noticedMs: number | null };
  announced: boolean; // `failing` or a notice went out, `recovered` is owed
  editedMs: number | null; // last edit or enable: what started before says nothing
  pausedSinceMs: number | null; // by an operator
  lastStatus: number | null;
  lastClass: string | null;
}
