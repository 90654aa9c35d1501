/**
 * The breaker: when it trips, how long it stays open, what a probe's answer does. Called by health.ts, with the step
 * under way. Why these numbers: docs/simulation.md.
 */
import { forget, isGated, neededRate, rateOf, type Step, say, startOf, WELL } from './health-step.ts';
import type { Fact, HealthState } from './health-types.ts';
import { totals } from './health-window.ts';
import { startPace } from './pace.ts';
import { hashUnit } from './schedule.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const BASE_COOLDOWN_MS = 15 * SECOND;
const GREATEST_K = 20;
const DECAY_MS = 10 * MINUTE;
const SUCCESSES_TO_CLOSE = 2;
/**
 * What came in up to so long before the last failed probe goes out with the live rows. Nothing in a long outage; in one
 * of a minute, near a receiver's capacity, the backlog would otherwise get a tenth of the rate for ten minutes.
 */
const LIVE_BEFORE_MS = 15 * SECOND;
const SPARSE_MS = 10 * MINUTE;
const SPARSE_CAP_MS = HOUR;
/** A 429 says that the receiver is there; only when it never says anything else is it as good as down. */
const ONLY_THROTTLED_MS = MINUTE;
const CONFIG_IN_A_ROW = 50;
const CONFIG_FOR_MS = 10 * MINUTE;
/** A claim's time and its worker's clock may differ by so much. */
const SKEW_MS = SECOND;
/** From a claim to its request, at the most, and back to the row. */
const CLAIM_SLACK_MS = 15 * SECOND;

const longestCooldown = (ageMs: number): number =>
  ageMs < HOUR ? MINUTE : ageMs < 24 * HOUR ? 5 * MINUTE : 30 * MINUTE;

/** 1 to 1.2, so that the endpoints behind one dead host do not probe it in step. */
const jitter = (endpoint: string, n: number): number => 1 + 0.2 * hashUnit(`${endpoint}:${n}`);

/** @param ageMs of the outage. @param opens differs for each opening: the jitter's key. */
export function cooldownMs(endpoint: string, k: number, opens: number, ageMs: number): number {
  return Math.min(longestCooldown(ageMs), BASE_COOLDOWN_MS * 2 ** k) * jitter(endpoint, opens);
}

/** Sets the next probe, after a pause that is longer. */
function arm(step: Step, waitMs: number): void {
  step.s.probeAtMs = Math.max(step.seen.nowMs + waitMs, step.pauseUntilMs ?? 0);
  step.s.successes = 0;
}

/** The wait after an opening. @param escalate the next one will be twice as long. */
function coolDown(step: Step, escalate: boolean): void {
  const { s, seen } = step;
  s.opens++;
  const age = Math.max(0, seen.nowMs - (s.outageSinceMs ?? seen.nowMs));
  if (escalate) s.k = Math.min(GREATEST_K, s.k + 1);
  arm(step, cooldownMs(seen.endpoint, Math.max(0, s.k - 1), s.opens, age));
}

/** Why the breaker must open now, or null. For an endpoint that is not gated. */
export function tripReason(step: Step): string | null {
  const { s, seen } = step;
  const { run } = s;
  const since = (at: number | null): number => (at === null ? Number.POSITIVE_INFINITY : seen.nowMs - at);
  const quietMs = Math.min(since(seen.lastSuccessAtMs), run.sinceMs === null ? 0 : since(run.sinceMs));
  const count429 = quietMs >= ONLY_THROTTLED_MS;
  const sum = totals(s.window);
  const failed = sum.fail + (count429 ? sum.throttled : 0);
  const results = sum.ok + failed;
  if (results >= 20 && failed >= results / 2)
    return `${Math.round((100 * failed) / results)} % failed in a minute`;
  const inRow = run.fails + (count429 ? run.throttled : 0);
  if (inRow >= 20 || (seen.failsInRow ?? 0) >= 20) return '20 failures in a row';
  // An endpoint that never succeeded has been without a success since its first failure.
  if (inRow >= 5 && run.deliveries.length >= 3 && since(seen.lastSuccessAtMs ?? run.sinceMs) >= 10 * SECOND)
    return `${inRow} failures in a row`;
  return null;
}

/** When `tripReason` may become true without a further result, or null. */
export function tripDueMs(step: Step): number | null {
  const { run } = step.s;
  const last = step.seen.lastSuccessAtMs ?? run.sinceMs;
  const nearly = run.fails >= 5 && run.deliveries.length >= 3 && last !== null;
  return nearly ? last + 10 * SECOND : null;
}

export function trip(step: Step, reason: string): void {
  const { s, seen } = step;
  if (s.health === 'closed') s.before = rateOf(s, seen);
  s.health = 'open';
  s.cause = 'failures';
  s.sinceMs = seen.nowMs;
  s.outageSinceMs = seen.nowMs;
  s.liveSinceMs = seen.nowMs;
  s.pace = null;
  forget(s);
  coolDown(step, true);
  if (!s.announced) say(step, 'failing', reason, { untilMs: s.probeAtMs });
  s.announced = true;
  say(step, 'opened', reason, { untilMs: s.probeAtMs });
}

const sparseWait = (step: Step): number =>
  Math.min(SPARSE_CAP_MS, SPARSE_MS * 2 ** Math.min(GREATEST_K, step.s.sparse)) *
  jitter(step.seen.endpoint, step.s.opens);

export function checkMisconfigured(step: Step): void {
  const { s, seen } = step;
  if (s.config.count < CONFIG_IN_A_ROW || s.config.sinceMs === null) return;
  if (seen.nowMs - s.config.sinceMs < CONFIG_FOR_MS) return;
  if (s.health === 'closed') s.before = rateOf(s, seen);
  s.health = 'misconfigured';
  s.cause = 'config';
  s.sinceMs = seen.nowMs;
  s.liveSinceMs = seen.nowMs;
  s.pace = null;
  s.sparse = 0;
  s.opens++;
  forget(s);
  arm(step, sparseWait(step));
  s.announced = true;
  say(step, 'misconfigured', `${s.config.count} times refused in a row`, { untilMs: s.probeAtMs });
}

function close(step: Step): void {
  const { s, seen } = step;
  say(step, 'closed', s.cause === 'config' ? 'a probe succeeded' : 'two probes succeeded', WELL);
  s.health = 'recovering';
  s.cause = null;
  s.sinceMs = seen.nowMs;
  s.kSinceMs = seen.nowMs;
  s.outageSinceMs = null;
  s.probeAtMs = null;
  s.successes = 0;
  s.config = { sinceMs: null, count: 0 };
  s.pace = startPace(neededRate(s, seen), seen.nowMs);
  forget(s);
  step.resetTokens = true;
}

/** Whether a 2xx can be the probe's. null: it may also be of a request that was under way when the breaker opened. */
function isProbes(step: Step, fact: Fact): boolean | null {
  const { s, seen } = step;
  const armed = s.probeAtMs ?? seen.nowMs;
  if (fact.testOk === true) return true;
  if (fact.okStartedMs !== undefined) return fact.okStartedMs >= armed - SKEW_MS;
  if (fact.atMs < armed) return false;
  const stragglersUntil = s.sinceMs + seen.timeoutMs + CLAIM_SLACK_MS;
  return s.successes > 0 || fact.atMs >= stragglersUntil ? true : null;
}

function sparser(step: Step): void {
  step.s.sparse++;
  step.s.opens++;
  arm(step, sparseWait(step));
}

/** A probe that did not succeed: the next one after the cooldown, or sparsely. */
function probeAgain(step: Step, escalate: boolean): void {
  const { s } = step;
  if (s.health === 'half_open') s.health = s.cause === 'config' ? 'misconfigured' : 'open';
  if (s.cause === 'config') sparser(step);
  else coolDown(step, escalate);
}

function onProbeSuccess(step: Step, fact: Fact): void {
  const { s } = step;
  const probes = isProbes(step, fact);
  if (probes === false) return;
  const successes = s.successes + 1;
  if (probes === null) arm(step, SECOND);
  else if (successes >= SUCCESSES_TO_CLOSE || s.cause === 'config') close(step);
  else {
    arm(step, 0);
    s.successes = successes;
    s.health = 'half_open';
  }
}

/** A result of the endpoint's current epoch while it is gated: the probe's, or one that was on its way before. */
export function onProbe(step: Step, fact: Fact): void {
  const { s, seen } = step;
  const armed = s.probeAtMs ?? seen.nowMs;
  if (fact.fail + fact.throttled > 0) {
    if (startOf(fact) < armed - SKEW_MS) return;
    // It was down when this probe began: what was accepted later is live.
    s.liveSinceMs = startOf(fact) - LIVE_BEFORE_MS;
    probeAgain(step, fact.fail > 0 && !step.frozen);
  } else if (fact.ok > 0) onProbeSuccess(step, fact);
  else if (fact.config + fact.neutral + fact.lost > 0 && fact.atMs >= armed) {
    // Neither ill nor well, or nobody knows: the same wait again, and an earlier success still counts.
    const { successes } = s;
    probeAgain(step, false);
    if (fact.lost === 0) s.successes = successes;
  }
}

/** Someone changed something or asked: probe at once. */
export function probeNow(step: Step): void {
  const { s } = step;
  if (!isGated(s)) return;
  s.health = 'half_open';
  s.sparse = 0;
  arm(step, 0);
}

const leaseEndMs = (step: Step): number =>
  (step.s.probeAtMs ?? 0) + 1.5 * step.seen.timeoutMs + CLAIM_SLACK_MS;

/**
 * What time alone does to a gated endpoint: the cooldown ends; a probe whose lease ran out may be made again (the
 * claim still sees its slot until it is reaped); a clock that was set back does not keep it waiting for longer.
 */
export function passTime(step: Step): void {
  const { s, seen } = step;
  const age = Math.max(0, seen.nowMs - (s.outageSinceMs ?? seen.nowMs));
  const longest = 1.2 * (s.cause === 'config' ? SPARSE_CAP_MS : longestCooldown(age));
  const latest = Math.max(seen.nowMs + longest, step.pauseUntilMs ?? 0);
  if (s.probeAtMs === null || s.probeAtMs > latest) s.probeAtMs = latest;
  if (seen.nowMs >= leaseEndMs(step)) s.probeAtMs = Math.max(seen.nowMs, step.pauseUntilMs ?? 0);
  if (s.health === 'open' && seen.nowMs >= s.probeAtMs) s.health = 'half_open';
}

/** Nothing is probed while nothing waits or an operator has paused the endpoint: what changes that is a fact. */
export const gatedWakeMs = (step: Step): number | null =>
  step.seen.held > 0 && step.seen.operator === 'active' ? leaseEndMs(step) : null;

/** One step of escalation is forgiven for each ten minutes without a trip. */
export function decay(s: HealthState, nowMs: number): void {
  if (s.kSinceMs > nowMs) s.kSinceMs = nowMs;
  if (isGated(s)) return;
  const steps = Math.floor((nowMs - s.kSinceMs) / DECAY_MS);
  s.k = Math.max(0, s.k - steps);
  s.kSinceMs += steps * DECAY_MS;
}
