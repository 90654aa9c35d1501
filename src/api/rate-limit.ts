/**
 * A token bucket per tenant, in memory: for operations that make us touch a network name of the caller's choice, so
 * that nobody scans with us. Per process on purpose: it bounds abuse, it does not account.
 */
import { ProblemError } from '../errors.ts';

export interface RateLimit {
  /** Takes one token; a 429 problem with Retry-After when there is none. */
  take(tenant: string): void;
}

export function createRateLimit(options: {
  burst: number;
  perSecond: number;
  now?: () => number;
}): RateLimit {
  const { burst, perSecond } = options;
  const now = options.now ?? (() => performance.now());
  const buckets = new Map<string, { tokens: number; at: number }>();
  return {
    take(tenant) {
      const at = now();
      const bucket = buckets.get(tenant) ?? { tokens: burst, at };
      const tokens = Math.min(burst, bucket.tokens + ((at - bucket.at) / 1_000) * perSecond);
      if (tokens < 1) {
        const seconds = Math.ceil((1 - tokens) / perSecond);
        throw new ProblemError('rate_limited', `at most ${perSecond} such requests a second and tenant`, {
          headers: { 'retry-after': String(Math.max(1, seconds)) },
        });
      }
      // Kept in order of use: the first ones are full again and may go.
      buckets.delete(tenant);
      buckets.set(tenant, { tokens: tokens - 1, at });
      for (const [other, old] of buckets) {
        if (at - old.at < (burst / perSecond) * 1_000) break;
        buckets.delete(other);
      }
    },
  };
}
