/**
 * Endpoint health as one pure function: what an endpoint's results of late mean for what may be sent to it. The health
 * step calls `reduceHealth` with the rows it found and the inbox, and writes the answer back with one compare-and-swap;
 * who loses that reduces again. No clock, no randomness: times come with `seen`, jitter from hashes.
 * Parts: breaker.ts (trip, cooldown, probe), pace.ts (rates), disable-clock.ts, health-window.ts, health-state.ts.
 */
import {
  checkMisconfigured,
  decay,
  gatedWakeMs,
  onProbe,
  passTime,
  probeNow,
  trip,
  tripDueMs,
  tripReason,
} from './breaker.ts';
import { OUTCOME_CLASSES, type OutcomeClass } from './classes.ts';
import { checkClock, excludePause, noteFailures, noteSuccess, restartClock } from './disable-clock.ts';
import { copyState, freshState } from './health-state.ts';
import { forget, isGated, neededRate, rateOf, type Step, say, startOf, WELL } from './health-step.ts';
import type { Fact, Gate, HealthState, HealthStep, Seen } from './health-types.ts';
import { addFact, addSpread, prune, totals } from './health-window.ts';
import {
  BETA_FAILED,
  BETA_THROTTLED,
  decreased,
  faded,
  failing,
  grown,
  observed,
  refusedAgain,
  startPace,
} from './pace.ts';
import { hashUnit } from './schedule.ts';

export { parseHealthState } from './health-state.ts';
export type {
  Edge,
  EdgeKind,
  Fact,
  Gate,
  Health,
  HealthState,
  HealthStep,
  Seen,
} from './health-types.ts';

/** Slow: more than 5 % of the last minute's requests took over 2 s, which is what a p95 over 2 s means. */
const SLOW_SHARE = 0.05;
const SLOW_LEAST = 20;
const KEEP_PUMP_MS = 30_000;
const LONG_PAUSE_MS = 3_600_000;
/** After a pause longer than this, what came in meanwhile is backlog. */
const BACKLOG_PAUSE_MS = 60_000;
/** More than this waiting at the end of an operator's pause is let out at a growing rate, not at once. */
const RESUME_PACED_ABOVE = 100;
const PACED_STEP_MS = 1_000;
/** After a 429 without Retry-After, times 1 to 2. */
const PAUSE_MS = 1_000;
/** The first 429 brings an endpoint down to nearly this at the least; further ones find out. */
const FIRST_THROTTLED_RATE = 2;

/** Successes that no fact reported are the rest of the counter's difference, spread over the time since. */
function absorbOks(step: Step, facts: readonly Fact[]): void {
  const { s, seen } = step;
  const known = facts.reduce((sum, fact) => sum + fact.ok, 0);
  const difference = seen.oks - s.oks;
  // A counter that went back was set anew.
  const plain = difference < 0 ? 0 : difference - known + s.okCarry;
  s.okCarry = Math.max(-10_000, Math.min(0, plain));
  s.oks = seen.oks;
  if (plain <= 0 || isGated(s)) return;
  const last = Math.max(s.steppedMs, Math.min(seen.lastSuccessAtMs ?? seen.nowMs, seen.nowMs));
  s.window = addSpread(s.window, plain, s.steppedMs, last, seen.nowMs);
}

/** A success ends what was in a row. One in the middle ends it too: then it is longer than known, never shorter. */
function breakRows(step: Step): void {
  const { s, seen } = step;
  const last = seen.lastSuccessAtMs;
  if (last === null) return;
  if (s.run.sinceMs !== null && last >= s.run.sinceMs)
    s.run = { sinceMs: null, fails: 0, throttled: 0, deliveries: [] };
  if (s.config.sinceMs !== null && last >= s.config.sinceMs) s.config = { sinceMs: null, count: 0 };
}

function addToRows(step: Step, fact: Fact): void {
  const { s, seen } = step;
  const last = seen.lastSuccessAtMs;
  const broken = fact.ok > 0 || (last !== null && fact.atMs <= last);
  const ill = fact.fail + fact.throttled;
  if (broken || ill > 0) s.config = { sinceMs: null, count: 0 };
  else if (fact.config > 0)
    s.config = { sinceMs: s.config.sinceMs ?? fact.atMs, count: s.config.count + fact.config };
  if (broken) s.run = { sinceMs: null, fails: 0, throttled: 0, deliveries: [] };
  else if (ill > 0) {
    s.run.sinceMs ??= fact.atMs;
    s.run.fails += fact.fail;
    s.run.throttled += fact.throttled;
    s.run.deliveries = [...new Set([...s.run.deliveries, ...fact.deliveries])].slice(0, 5);
  }
}

/** What a quiet endpoint was sent says nothing of what it can take. */
const firstRate = ({ s, seen }: Step): number =>
  Math.max(FIRST_THROTTLED_RATE, rateOf(s, seen), seen.recentRate ?? 0);

/** 429, and 503 with Retry-After: pause, and go on at a lower rate. Once per flight. */
function throttle(step: Step, fact: Fact): void {
  const { s, seen } = step;
  const asked = fact.pauseUntilMs !== null && fact.pauseUntilMs > fact.atMs;
  if (fact.throttled === 0 && !asked) return;
  if (s.pace !== null && startOf(fact) <= s.pace.decreasedMs) return;
  const early = s.pace !== null && s.pace.decreases > 0 && !s.pace.taken;
  const pace = early
    ? refusedAgain(s.pace!, seen.nowMs)
    : decreased(s.pace, s.pace?.rate ?? firstRate(step), BETA_THROTTLED, seen.nowMs);
  s.pace = pace;
  s.keepPumpUntilMs = seen.nowMs + KEEP_PUMP_MS;
  step.resetTokens = true;
  if (!asked) {
    const jitter = 1 + hashUnit(`${seen.endpoint}:429:${pace.decreases}`);
    const wait = PAUSE_MS * (1 + pace.refusals) * jitter;
    step.pauseUntilMs = Math.max(step.pauseUntilMs ?? 0, seen.nowMs + wait);
  }
  const pause = (step.pauseUntilMs ?? 0) - seen.nowMs;
  if (pause > BACKLOG_PAUSE_MS) s.liveSinceMs = step.pauseUntilMs;
}

/** The pump emptied. */
function drained(step: Step): void {
  const { s, seen } = step;
  if (isGated(s)) return;
  if (s.pace !== null) s.pace = faded(s.pace, seen.nowMs);
  s.liveSinceMs = null;
  s.keepPumpUntilMs = null;
  if (s.health !== 'recovering') return;
  s.health = 'closed';
  s.sinceMs = seen.nowMs;
  if (s.announced) say(step, 'recovered', 'nothing waits any more', WELL);
  s.announced = false;
}

/** What an operator's pause has held back, at a growing rate. */
function letOut(step: Step, liveSinceMs: number): void {
  const { s, seen } = step;
  s.health = 'recovering';
  s.sinceMs = seen.nowMs;
  s.liveSinceMs = liveSinceMs;
  s.pace = startPace(neededRate(s, seen), seen.nowMs);
  step.resetTokens = true;
}

function onEdit(step: Step, fact: Fact): void {
  const { s, seen } = step;
  switch (fact.edit) {
    case 'pause':
      s.pausedSinceMs = fact.atMs;
      if (s.health === 'closed') s.before = rateOf(s, seen);
      return;
    case 'resume': {
      step.pauseUntilMs = null;
      const since = s.pausedSinceMs;
      s.pausedSinceMs = null;
      if (since !== null) excludePause(step, since);
      if (isGated(s)) probeNow(step);
      else if (s.health === 'closed' && since !== null && seen.held > RESUME_PACED_ABOVE)
        letOut(step, fact.atMs);
      return;
    }
    case 'enable':
      restartClock(step);
      s.announced = false;
      s.k = 0;
      if (isGated(s)) s.outageSinceMs = seen.nowMs;
      onChange(step, fact);
      return;
    case 'edit':
      onChange(step, fact);
      return;
    case 'drained':
      drained(step);
      return;
    case 'overloaded':
      // More waits than the last rate lets out: it grows on from there.
      if (s.pace?.phase === 'fading') s.pace = { ...s.pace, phase: 'percent', fadesMs: null };
      return;
    default:
      return;
  }
}

/** A receiver of which nothing is known yet. */
function onChange(step: Step, fact: Fact): void {
  step.pauseUntilMs = null;
  step.s.editedMs = fact.atMs;
  step.s.config = { sinceMs: null, count: 0 };
  step.s.lastStatus = null;
  step.s.lastClass = null;
  if (isGated(step.s)) probeNow(step);
  else {
    forget(step.s);
    step.resetFailsInRow = true;
  }
}

const SAYS_ILL: ReadonlySet<string> = new Set(['failure', 'throttled', 'configuration']);
const isIll = (name: string): boolean =>
  Object.hasOwn(OUTCOME_CLASSES, name) && SAYS_ILL.has(OUTCOME_CLASSES[name as OutcomeClass].health);

/**
 * The last failure, for those who are told. A batch names its last result only: when that was none, the failure's is not
 * known, and the one before stands as long as it belongs to the same trouble.
 */
function rememberFailure(step: Step, fact: Fact): void {
  const { s } = step;
  if (fact.fail + fact.throttled + fact.config === 0) return;
  const known = isIll(fact.lastClass);
  if (!known && (isGated(s) || inTrouble(s))) return;
  s.lastStatus = known ? fact.lastStatus : null;
  s.lastClass = known ? fact.lastClass : null;
}

function inTrouble({ run, config, window }: HealthState): boolean {
  const { fail, throttled } = totals(window);
  return run.fails + run.throttled + config.count + fail + throttled > 0;
}

function onFact(step: Step, fact: Fact): void {
  const { s, seen } = step;
  if (fact.edit !== null) onEdit(step, fact);
  const answered = fact.ok + fact.fail + fact.throttled + fact.config + fact.neutral + fact.lost;
  if (answered === 0 && !fact.gone && fact.pauseUntilMs === null) return;
  const started = fact.ok > 0 && fact.fail + fact.throttled === 0 ? fact.atMs : startOf(fact);
  const ofOld = s.editedMs !== null && started < s.editedMs;
  if (!ofOld) {
    if (fact.pauseUntilMs !== null) step.pauseUntilMs = Math.max(step.pauseUntilMs ?? 0, fact.pauseUntilMs);
    if (fact.gone && seen.operator !== 'disabled') step.disable = 'gone';
    noteFailures(step, fact);
    rememberFailure(step, fact);
  }
  if (ofOld || fact.epoch !== seen.epoch) return;
  if (isGated(s)) onProbe(step, fact);
  if (isGated(s) || step.frozen) return;
  addFact(s.window, fact, seen.nowMs);
  addToRows(step, fact);
  if (s.pace !== null) s.pace = observed(s.pace, fact);
  throttle(step, fact);
}

/** Growth, or the end, since the last step, as far as work waited and nothing was paused. */
function grow(step: Step): void {
  const { s, seen } = step;
  if (s.pace?.phase === 'fading' && (s.pace.fadesMs ?? 0) <= seen.nowMs) s.pace = null;
  if (s.pace === null || seen.held === 0 || seen.operator !== 'active') return;
  const from = Math.max(s.steppedMs, Math.min(seen.pauseUntilMs ?? 0, seen.nowMs));
  s.pace = grown(s.pace, seen.nowMs - from, seen.sendRate);
}

function judge(step: Step): void {
  const { s, seen } = step;
  if (isGated(s)) {
    passTime(step);
    return;
  }
  if (step.frozen) {
    forget(s);
    step.resetFailsInRow = true;
    return;
  }
  const reason = tripReason(step);
  if (reason !== null) trip(step, reason);
  else checkMisconfigured(step);
  if (isGated(s)) return;
  if (s.pace !== null && failing(s.pace)) {
    s.pace = decreased(s.pace, s.pace.rate, BETA_FAILED, seen.nowMs);
    step.resetTokens = true;
  }
  const { all, slow } = totals(s.window);
  if (all >= SLOW_LEAST && slow > SLOW_SHARE * all) s.keepPumpUntilMs = seen.nowMs + KEEP_PUMP_MS;
}

function announcePause(step: Step): void {
  const { s, seen } = step;
  const until = step.pauseUntilMs;
  if (until === null || until <= seen.nowMs) {
    s.longPauseUntilMs = null;
    return;
  }
  const told = s.longPauseUntilMs !== null && s.longPauseUntilMs > seen.nowMs;
  if (!told && until - seen.nowMs <= LONG_PAUSE_MS) return;
  if (!told) say(step, 'paused_long', 'Retry-After', { untilMs: until });
  s.longPauseUntilMs = until;
}

function gateOf(step: Step): Gate {
  const { s, seen } = step;
  const gated = isGated(s);
  if (s.keepPumpUntilMs !== null && s.keepPumpUntilMs <= seen.nowMs) s.keepPumpUntilMs = null;
  const paused = step.pauseUntilMs !== null && step.pauseUntilMs > seen.nowMs;
  const needed =
    gated ||
    s.health === 'recovering' ||
    (s.pace !== null && s.pace.phase !== 'fading') ||
    s.keepPumpUntilMs !== null ||
    paused ||
    seen.operator === 'paused';
  return {
    // Only the pump itself, when it is empty, goes back to `shared`.
    mode: needed ? 'pump' : seen.mode,
    probeAtMs: gated ? s.probeAtMs : null,
    rate: gated ? null : (s.pace?.rate ?? null),
    pauseUntilMs: paused ? step.pauseUntilMs : null,
    keepPumpUntilMs: s.keepPumpUntilMs,
    liveSinceMs: s.liveSinceMs,
    resetFailsInRow: step.resetFailsInRow,
    resetTokens: step.resetTokens,
  };
}

function wakeOf(step: Step, clockMs: number | null): number | null {
  const { s, seen } = step;
  if (seen.operator === 'disabled' || step.disable !== null) return null;
  const times = [clockMs];
  if (isGated(s)) times.push(gatedWakeMs(step));
  else {
    times.push(tripDueMs(step));
    if (s.pace?.phase === 'fading') times.push(s.pace.fadesMs);
    else if (s.pace !== null && seen.held > 0 && seen.operator === 'active')
      times.push(Math.max(seen.nowMs, step.pauseUntilMs ?? 0) + PACED_STEP_MS);
  }
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.max(seen.nowMs, Math.min(...known));
}

/**
 * @param state of the last step; null for an endpoint that never failed.
 * @param facts of the inbox, in any order; each exactly once over all steps.
 * @param guard.frozen it is us: many independent endpoints fail, and so does our own check.
 */
export function reduceHealth(
  state: HealthState | null,
  seen: Seen,
  facts: readonly Fact[],
  guard: { frozen: boolean },
): HealthStep {
  const s = state === null ? freshState(seen, facts) : copyState(state);
  const step: Step = {
    s,
    seen,
    frozen: guard.frozen,
    edges: [],
    pauseUntilMs: seen.pauseUntilMs,
    resetFailsInRow: false,
    resetTokens: false,
    disable: null,
  };
  const inOrder = [...facts].sort((a, b) => a.atMs - b.atMs);
  decay(s, seen.nowMs);
  s.window = prune(s.window, seen.nowMs);
  if (state !== null) absorbOks(step, inOrder);
  const noticed = s.clock.noticed > 0;
  noteSuccess(step);
  breakRows(step);
  grow(step);
  // The pump left without a word, or its word was lost.
  if (s.health === 'recovering' && s.mode === 'pump' && seen.mode === 'shared') drained(step);
  for (const fact of inOrder) onFact(step, fact);
  judge(step);
  const ended = noticed && s.clock.noticed === 0 && s.health === 'closed' && s.announced;
  if (ended) {
    say(step, 'recovered', 'a delivery succeeded', WELL);
    s.announced = false;
  }
  const clockMs = checkClock(step);
  if (step.disable === 'gone') say(step, 'disabled', '410 Gone', { lastStatus: 410, lastClass: 'http_410' });
  announcePause(step);
  const gate = gateOf(step);
  s.mode = gate.mode;
  s.steppedMs = seen.nowMs;
  return { state: s, gate, edges: step.edges, wakeAtMs: wakeOf(step, clockMs), disable: step.disable };
}
