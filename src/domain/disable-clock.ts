/**
 * When an endpoint that takes nothing is given up: by time without a success, never by count alone, so that a quiet
 * endpoint is not ended by a handful of failures. Called by health.ts.
 */
import { type Step, say } from './health-step.ts';
import type { Fact } from './health-types.ts';

const HOUR = 3_600_000;
const LEAST_ATTEMPTS = 10;
const NOTICES = [
  { hours: 24, kind: 'notice_24h', after: 0 },
  { hours: 72, kind: 'notice_72h', after: 24 },
] as const;
const DISABLE_HOURS = 120;
/** Each stage leaves its reader a day, also when attempts are so rare that the tenth comes after all three times. */
const BETWEEN_STAGES_MS = 24 * HOUR;

export function restartClock(step: Step): void {
  step.s.clock = { sinceMs: null, attempts: 0, noticed: 0, noticedMs: null };
}

/** A 2xx after the clock began ends it. */
export function noteSuccess(step: Step): void {
  const { s, seen } = step;
  if (s.clock.sinceMs === null || seen.lastSuccessAtMs === null) return;
  if (seen.lastSuccessAtMs < s.clock.sinceMs) return;
  restartClock(step);
}

/** Counts what is no success; of any epoch, but not what came before the last success, or is our fault. */
export function noteFailures(step: Step, fact: Fact): void {
  const { s, seen } = step;
  const failed = fact.fail + fact.throttled + fact.config;
  if (failed === 0 || step.frozen) return;
  if (seen.lastSuccessAtMs !== null && fact.atMs <= seen.lastSuccessAtMs) return;
  s.clock.sinceMs ??= fact.atMs;
  s.clock.attempts += failed;
}

/** Time an operator's pause took is no time without success. */
export function excludePause(step: Step, pausedSinceMs: number): void {
  const { clock } = step.s;
  if (clock.sinceMs === null) return;
  clock.sinceMs += Math.max(0, step.seen.nowMs - Math.max(pausedSinceMs, clock.sinceMs));
}

function nextStage(step: Step): { atMs: number; kind: 'notice_24h' | 'notice_72h' | 'disabled' } | null {
  const { clock } = step.s;
  if (clock.sinceMs === null || clock.attempts < LEAST_ATTEMPTS) return null;
  const notice = NOTICES.find(({ after }) => after === clock.noticed);
  const hours = notice?.hours ?? DISABLE_HOURS;
  const earliest = clock.noticedMs === null ? 0 : clock.noticedMs + BETWEEN_STAGES_MS;
  return { atMs: Math.max(clock.sinceMs + hours * HOUR, earliest), kind: notice?.kind ?? 'disabled' };
}

/** Notices and, at the end, the verdict. Answers when to look again, or null. */
export function checkClock(step: Step): number | null {
  const { s, seen } = step;
  if (seen.operator !== 'active' || step.frozen) return null;
  const stage = nextStage(step);
  if (stage === null) return null;
  if (seen.nowMs < stage.atMs) return stage.atMs;
  if (stage.kind === 'disabled') {
    step.disable = 'failing';
    say(step, 'disabled', `no success in ${DISABLE_HOURS / 24} days`);
    return null;
  }
  s.clock.noticed = stage.kind === 'notice_24h' ? 24 : 72;
  s.clock.noticedMs = seen.nowMs;
  s.announced = true;
  say(step, stage.kind, `no success in ${s.clock.noticed} hours`);
  return nextStage(step)?.atMs ?? null;
}
