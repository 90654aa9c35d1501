/**
 * How fast an endpoint that was ill, or says 429, is sent to: slow start after an outage, a cubic curve after
 * congestion. Pure; called by health.ts at each step. Requests per second.
 * Source of the curve: CUBIC (RFC 9438) made scale-free, so that every endpoint is back at W after K.
 */
import { startOf } from './health-step.ts';
import type { Fact, Pace } from './health-types.ts';

/** After 429, and after timeouts or 5xx. */
export const BETA_THROTTLED = 0.8;
export const BETA_FAILED = 0.7;
/** Never slower: a probe every 5 s is no burden and finds the way back. */
export const LEAST_RATE = 0.2;
const START_SHARE = 0.1;
const DOUBLING_MS = 20_000;
const TARGET_SHARE = 1.2;
/**
 * Doubling goes on to at least 1/s: an endpoint that gets an event per hour would otherwise drain an afternoon's
 * backlog at 0.2/s. No receiver that can hold a webhook is hurt by one request per second.
 */
const LEAST_TARGET = 1;
/** How far the rate doubles after a first congestion, in times of what was sent then. */
const FIRST_TARGET = 4;
const PERCENT_PER_SECOND = 1.01;
const K_MS = 60_000;
/** A step that comes late grows no more than this: rates follow answers, and there were none to follow. */
const LONGEST_GROWTH_MS = 5_000;
/** Of what is really sent: the average of 30 s lags a growth of 1 %/s by 1.3. */
const CEILING = 1.5;
/** In times of the first pause. */
const LONGEST_PAUSE = 9;
const FADE_MS = 10_000;
const RECENT_SECONDS = 3;
const FAILED_SHARE = 0.05;
/** Few results make a large share: W is at least this much of the rate. */
const LEAST_TAKEN = 0.9;
const TAKEN_WEIGHT = 0.7;

/** After an outage. @param before rate before it. */
export function startPace(before: number, nowMs: number): Pace {
  return {
    phase: 'double',
    rate: Math.max(LEAST_RATE, START_SHARE * before),
    target: Math.max(LEAST_TARGET, TARGET_SHARE * before),
    congested: before,
    beta: BETA_FAILED,
    grownMs: 0,
    decreasedMs: nowMs,
    decreases: 0,
    taken: false,
    refusals: 0,
    recent: [],
    fadesMs: null,
  };
}

/**
 * A lower pace after a congestion. W is close to what was taken of the rate at that moment. With the rate itself, which
 * had overshot, each round overshoots again after half of K (docs/simulation.md); with exactly what was taken there are
 * fewer refusals, but the rate stays below the capacity for longer.
 * The first one tells little: what was sent in the moment before it may be far below what the receiver takes. So the
 * rate doubles on until the next, which comes within seconds where the first was right.
 * @param rate what was sent until now.
 */
export function decreased(pace: Pace | null, rate: number, beta: number, nowMs: number): Pace {
  const congested = Math.max(LEAST_RATE, rate * Math.max(LEAST_TAKEN, 1 - TAKEN_WEIGHT * refusedShare(pace)));
  return {
    phase: pace === null ? 'double' : 'cubic',
    rate: Math.max(LEAST_RATE, beta * congested),
    target: pace?.target ?? Math.max(LEAST_TARGET, FIRST_TARGET * rate),
    congested,
    beta,
    grownMs: 0,
    decreasedMs: nowMs,
    decreases: (pace?.decreases ?? 0) + 1,
    taken: false,
    refusals: 0,
    recent: [],
    fadesMs: null,
  };
}

/**
 * Refused again although nothing was taken since the last decrease: then not the rate is too high, but it is too early,
 * as with a quota per minute that is used up. The rate stays, the next pause is longer.
 */
export const refusedAgain = (pace: Pace, nowMs: number): Pace => ({
  ...pace,
  decreasedMs: nowMs,
  decreases: pace.decreases + 1,
  refusals: Math.min(LONGEST_PAUSE, pace.refusals + 1),
  recent: [],
});

/** The pump has emptied: the rate holds for a while yet, so that what became ready with that does not go out at once. */
export const faded = (pace: Pace, nowMs: number): Pace => ({
  ...pace,
  phase: 'fading',
  fadesMs: nowMs + FADE_MS,
});

/**
 * The pace after `elapsedMs` in which work waited.
 * @param sendRate what really goes out: a rate that nothing uses must not run away from it.
 */
export function grown(pace: Pace, elapsedMs: number, sendRate: number): Pace {
  const ms = Math.min(Math.max(0, elapsedMs), LONGEST_GROWTH_MS);
  const next = { ...pace, grownMs: pace.grownMs + ms };
  if (pace.phase === 'fading') return next;
  if (pace.phase === 'double') {
    next.rate = pace.rate * 2 ** (ms / DOUBLING_MS);
    if (next.rate >= pace.target) {
      next.rate = Math.max(pace.rate, pace.target);
      next.phase = 'percent';
    }
    return next;
  }
  if (pace.phase === 'percent') next.rate = pace.rate * PERCENT_PER_SECOND ** (ms / 1000);
  else {
    const left = (K_MS - next.grownMs) / K_MS;
    next.rate = pace.congested * (1 - (1 - pace.beta) * left ** 3);
  }
  const ceiling = CEILING * Math.max(sendRate, pace.target);
  next.rate = Math.max(pace.rate, Math.min(next.rate, ceiling));
  return next;
}

/** Adds a batch's results to the last seconds. Failures of requests sent before the last decrease do not count. */
export function observed(pace: Pace, fact: Fact): Pace {
  const second = Math.floor(fact.atMs / 1000);
  const fresh = startOf(fact) > pace.decreasedMs;
  const fail = fresh ? fact.fail : 0;
  const throttled = fresh ? fact.throttled : 0;
  const recent = pace.recent.filter((entry) => entry.second > second - RECENT_SECONDS);
  const same = recent.findIndex((other) => other.second === second);
  const entry = recent[same] ?? { second, ok: 0, fail: 0, throttled: 0 };
  const sum = {
    second,
    ok: entry.ok + fact.ok,
    fail: entry.fail + fail,
    throttled: entry.throttled + throttled,
  };
  const taken = pace.taken || (fact.ok > 0 && (fact.okStartedMs ?? fact.atMs) > pace.decreasedMs);
  return { ...pace, taken, recent: [...recent.filter((other) => other.second !== second), sum] };
}

const total = (pace: Pace, key: 'ok' | 'fail' | 'throttled'): number =>
  pace.recent.reduce((sum, entry) => sum + entry[key], 0);

/** More than 5 % of the last three seconds failed. */
export function failing(pace: Pace): boolean {
  const fail = total(pace, 'fail');
  return fail > FAILED_SHARE * (total(pace, 'ok') + fail);
}

function refusedShare(pace: Pace | null): number {
  if (pace === null) return 0;
  const refused = total(pace, 'fail') + total(pace, 'throttled');
  return refused === 0 ? 0 : refused / (total(pace, 'ok') + refused);
}
