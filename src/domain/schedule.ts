/**
 * How long to wait after a failed attempt. Pure: jitter comes from a hash of (delivery, attempt), so that a
 * computation repeated anywhere gives the same time. Called by decide.ts. Milliseconds throughout.
 */
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

/**
 * Wait before the attempt after schedule place `step` (0 = after the first attempt), or null when a listed schedule
 * has no further step.
 * @param slowDown the receiver answered 429 without Retry-After: exponential policies grow three times faster.
 */
export function waitMs(
  policy: RetryPolicy,
  step: number,
  jitterKey: string,
  slowDown: boolean,
): number | null {
  const u = hashUnit(jitterKey);
  if (policy.kind === 'schedule') {
    const wait = policy.stepsMs[step];
    return wait === undefined ? null : wait * (1 + 0.1 * u);
  }
  const factor = slowDown ? policy.factor * 1.5 : policy.factor;
  // factor^step overflows to Infinity for large steps; the cap takes care of it.
  const full = Math.min(policy.capMs, policy.baseMs * factor ** step);
  return policy.jitter === 'none' ? full : full / 2 + (full / 2) * u;
}
