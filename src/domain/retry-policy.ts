/**
 * When a failed delivery is tried again: an endpoint's retry policy, checked on write and kept in one form.
 * Called by the API (normalizeRetryPolicy) and by decide.ts (src/domain/schedule.ts computes the times).
 */

import { duration } from './sentences.ts';

/** The kept form. `schedule` lists fixed waits; `exponential` grows from base to cap. All times in milliseconds. */
export type RetryPolicy = {
  readonly name: 'default' | 'standard-webhooks' | 'custom';
  readonly deadlineMs: number;
  readonly maxAttempts: number;
  readonly retry4xx: boolean;
} & (
  | {
      readonly kind: 'exponential';
      readonly baseMs: number;
      readonly factor: number;
      readonly capMs: number;
      readonly jitter: 'equal' | 'none';
    }
  | { readonly kind: 'schedule'; readonly stepsMs: readonly number[] }
);

export type RetryPolicyCheck =
  | { readonly ok: true; readonly policy: RetryPolicy; readonly deadlineMs: number }
  | { readonly ok: false; readonly pointer: string; readonly detail: string };

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Equal jitter on 30 s · 2^n, at most 6 h apart, for 72 h and 30 attempts. */
export const DEFAULT_POLICY: RetryPolicy = {
  name: 'default',
  kind: 'exponential',
  baseMs: 30 * SECOND,
  factor: 2,
  capMs: 6 * HOUR,
  jitter: 'equal',
  deadlineMs: 72 * HOUR,
  maxAttempts: 30,
  retry4xx: true,
};

/** The example schedule of the Standard Webhooks specification, 10 % upward jitter, deadline 80 h. */
export const STANDARD_WEBHOOKS_POLICY: RetryPolicy = {
  name: 'standard-webhooks',
  kind: 'schedule',
  stepsMs: [
    5 * SECOND,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
  ],
  deadlineMs: 80 * HOUR,
  maxAttempts: 10,
  retry4xx: true,
};

const UNITS: Record<string, number> = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY };

/** Milliseconds of "250ms", "5s", "1.5h", "2d"; null for anything else. */
export function parseDuration(text: unknown): number | null {
  if (typeof text !== 'string') return null;
  const match = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(text);
  return match ? Math.round(Number(match[1]) * UNITS[match[2]!]!) : null;
}

const FIELDS = [
  'preset',
  'schedule',
  'base',
  'factor',
  'cap',
  'jitter',
  'deadline',
  'max_attempts',
  'retry_4xx',
];

/**
 * Checks `{preset}` or `{schedule: ["5s", …]}` or `{base, factor, cap, jitter}`, plus `{deadline, max_attempts,
 * retry_4xx}`. Steps ≥ 10 ms; deadline 1 s to 30 days; a schedule without one fits into 72 h. The pointer names the wrong field inside the policy.
 */
export function normalizeRetryPolicy(input: unknown): RetryPolicyCheck {
  if (input === undefined || input === null)
    return { ok: true, policy: DEFAULT_POLICY, deadlineMs: DEFAULT_POLICY.deadlineMs };
  if (typeof input !== 'object' || Array.isArray(input)) return bad('', 'must be an object');
  const given = input as Record<string, unknown>;
  for (const field of Object.keys(given)) {
    if (!FIELDS.includes(field)) return bad(`/${field}`, `unknown field; known are ${FIELDS.join(', ')}`);
  }
  const shaped = shape(given);
  if (!shaped.ok) return shaped;
  let policy = shaped.policy;
  if (given.deadline !== undefined) {
    const deadlineMs = parseDuration(given.deadline);
    if (deadlineMs === null || deadlineMs < SECOND || deadlineMs > 30 * DAY)
      return bad('/deadline', 'must be a duration from "1s" to "30d"');
    policy = { ...policy, deadlineMs };
  }
  if (given.max_attempts !== undefined) {
    const maxAttempts = given.max_attempts;
    if (
      typeof maxAttempts !== 'number' ||
      !Number.isInteger(maxAttempts) ||
      maxAttempts < 1 ||
      maxAttempts > 1000
    ) {
      return bad('/max_attempts', 'must be a whole number from 1 to 1000');
    }
    policy = { ...policy, maxAttempts };
  }
  if (given.retry_4xx !== undefined) {
    if (typeof given.retry_4xx !== 'boolean') return bad('/retry_4xx', 'must be true or false');
    policy = { ...policy, retry4xx: given.retry_4xx };
  }
  if (given.deadline === undefined) {
    const detail = cutOff(policy);
    if (detail !== null) return bad('/schedule', detail);
  }
  return { ok: true, policy, deadlineMs: policy.deadlineMs };
}

/**
 * A list whose last waits would come after a deadline that nobody gave: whoever writes a list expects all of it. With a
 * deadline of the caller's own, the caller has seen both numbers, and retry_schedule shows what fits.
 */
function cutOff(policy: RetryPolicy): string | null {
  if (policy.kind !== 'schedule') return null;
  const waitsMs = policy.stepsMs.slice(0, policy.maxAttempts - 1).reduce((sum, step) => sum + step, 0);
  if (waitsMs < policy.deadlineMs) return null;
  const total = duration(waitsMs);
  const given = duration(policy.deadlineMs);
  const longest = 30 * DAY;
  return `its waits add up to ${total}, but a delivery is given up after ${given} unless the policy says otherwise: ${
    waitsMs < longest
      ? `give a deadline of more than ${total}`
      : `no deadline is longer than ${duration(longest)}`
  }, or shorten the schedule`;
}

function shape(given: Record<string, unknown>): RetryPolicyCheck {
  const exponential = ['base', 'factor', 'cap', 'jitter'].filter((field) => given[field] !== undefined);
  const kinds = [given.preset !== undefined, given.schedule !== undefined, exponential.length > 0].filter(
    Boolean,
  ).length;
  if (kinds > 1) return bad('', 'give one of preset, schedule, or base/factor/cap/jitter');
  if (given.schedule !== undefined) return shapeSchedule(given.schedule);
  if (exponential.length > 0) return shapeExponential(given);
  if (given.preset === undefined || given.preset === 'default') return good(DEFAULT_POLICY);
  if (given.preset === 'standard-webhooks') return good(STANDARD_WEBHOOKS_POLICY);
  return bad('/preset', 'must be "default" or "standard-webhooks"');
}

function shapeSchedule(schedule: unknown): RetryPolicyCheck {
  if (!Array.isArray(schedule) || schedule.length === 0 || schedule.length > 100)
    return bad('/schedule', 'must be a list of 1 to 100 durations');
  const stepsMs: number[] = [];
  for (const [index, step] of schedule.entries()) {
    const ms = parseDuration(step);
    if (ms === null || ms < 10 || ms > 30 * DAY)
      return bad(`/schedule/${index}`, 'must be a duration from "10ms" to "30d", such as "5s"');
    stepsMs.push(ms);
  }
  return good({
    ...DEFAULT_POLICY,
    name: 'custom',
    kind: 'schedule',
    stepsMs,
    maxAttempts: stepsMs.length + 1,
  } as RetryPolicy);
}

function shapeExponential(given: Record<string, unknown>): RetryPolicyCheck {
  const baseMs = given.base === undefined ? 30 * SECOND : parseDuration(given.base);
  if (baseMs === null || baseMs < 10 || baseMs > DAY)
    return bad('/base', 'must be a duration from "10ms" to "1d"');
  const capMs = given.cap === undefined ? Math.max(6 * HOUR, baseMs) : parseDuration(given.cap);
  if (capMs === null || capMs < baseMs || capMs > 30 * DAY)
    return bad('/cap', 'must be a duration from base to "30d"');
  const factor = given.factor ?? 2;
  if (typeof factor !== 'number' || !(factor >= 1 && factor <= 10))
    return bad('/factor', 'must be a number from 1 to 10');
  const jitter = given.jitter ?? 'equal';
  if (jitter !== 'equal' && jitter !== 'none') return bad('/jitter', 'must be "equal" or "none"');
  return good({
    ...DEFAULT_POLICY,
    name: 'custom',
    kind: 'exponential',
    baseMs,
    factor,
    capMs,
    jitter,
  } as RetryPolicy);
}

function good(policy: RetryPolicy): RetryPolicyCheck {
  return { ok: true, policy, deadlineMs: policy.deadlineMs };
}

function bad(pointer: string, detail: string): RetryPolicyCheck {
  return { ok: false, pointer, detail };
}
