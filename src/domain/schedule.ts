/**
 * How long to wait after a failed attempt. Pure: jitter comes from a hash of (delivery, attempt), so that a
 * computation repeated anywhere gives the same time. Called by decide.ts and outlook.ts. Milliseconds throughout.
 */
import type { Pace } from './classes.ts';
import type { RetryPolicy } from './retry-policy.ts';

/** A number in [0, 1) from text: FNV-1a over the characters, then a murmur3 finaliser to spread neighbours. */
export function hashUnit(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    h ^= text.charCodeAt(i);
    h = Math.imul(h, 0x01000193);
  }
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  h ^= h >>> 16;
  return (h >>> 0) / 2 ** 32;
}

export interface Wait {
  readonly minMs: number;
  readonly maxMs: number;
}

const MINUTE = 60_000;

/**
 * Between which times the attempt after schedule place `step` (0 = after the first attempt) follows, counted from the
 * failure; null when a listed schedule has no further step. Never longer than the policy's own longest wait.
 */
export function waitBounds(policy: RetryPolicy, step: number, pace: Pace = 'normal'): Wait | null {
  const own = ownBounds(policy, step, pace);
  if (own === null || (pace !== 'slower' && pace !== 'minute')) return own;
  const listed = policy.kind === 'schedule';
  const longest = listed ? Math.max(...policy.stepsMs) : policy.capMs;
  // Spread upward, so that what failed in one instant does not come back in one. Lists exceed their steps anyway.
  const spread = listed || policy.jitter === 'none' ? 1 : 1.5;
  const floor = Math.min(MINUTE, longest / spread);
  const top = floor * (listed ? 1 + LIST_JITTER : spread);
  return { minMs: Math.max(own.minMs, floor), maxMs: Math.max(own.maxMs, top) };
}

/** Listed steps are only ever lengthened. */
const LIST_JITTER = 0.1;

function ownBounds(policy: RetryPolicy, step: number, pace: Pace): Wait | null {
  if (policy.kind === 'schedule') {
    const listed = policy.stepsMs[step];
    return listed === undefined ? null : { minMs: listed, maxMs: listed * (1 + LIST_JITTER) };
  }
  const factor = pace === 'slower' ? policy.factor * 1.5 : policy.factor;
  // factor^step overflows to Infinity for large steps; the cap takes care of it.
  const full = Math.min(policy.capMs, policy.baseMs * factor ** step);
  return { minMs: policy.jitter === 'none' ? full : full / 2, maxMs: full };
}

/** The wait itself: the place between its bounds that the key's hash picks. Milliseconds, a fraction possibly. */
export function waitMs(
  policy: RetryPolicy,
  step: number,
  jitterKey: string,
  pace: Pace = 'normal',
): number | null {
  const bounds = waitBounds(policy, step, pace);
  return bounds === null ? null : bounds.minMs + (bounds.maxMs - bounds.minMs) * hashUnit(jitterKey);
}
