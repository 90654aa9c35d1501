/**
 * What becomes of a delivery after an attempt: the one place that says so. Called by src/activities/sender.ts;
 * the answer is written by the record call. Times are epoch milliseconds.
 */
import { OUTCOME_CLASSES, type OutcomeClass } from './classes.ts';
import type { RetryPolicy } from './retry-policy.ts';
import { waitMs } from './schedule.ts';

export interface AttemptFacts {
  readonly delivery: string;
  readonly n: number; // number of this attempt
  readonly step: number;
  readonly burned: number;
  readonly class: OutcomeClass;
  readonly retryAfterSeconds: number | null; // parsed; null: absent or junk
  readonly nowMs: number;
  readonly deadlineMs: number; // epoch
  readonly resumeAtMs: number | null; // set: a manual attempt; its failure goes back to this due time
  readonly policy: RetryPolicy;
}

export type Decision =
  | { readonly outcome: 'delivered'; readonly step: number; readonly burned: number }
  | { readonly outcome: 'retrying'; readonly dueMs: number; readonly step: number; readonly burned: number }
  | { readonly outcome: 'dead'; readonly reason: DeadReason; readonly step: number; readonly burned: number };

/** Why a delivery is dead. `deadline` is also written by the finish call. */
export const DEAD_REASONS = ['deadline', 'max_attempts', 'gone', 'not_retried'] as const;
export type DeadReason = (typeof DEAD_REASONS)[number];

/** Faults of ours are tried again soon: they say nothing about the receiver and burn nothing. */
const OURS_RETRY_MS = 5_000;

/** Decides. A wait that would pass the deadline ends at the deadline: dead then, not before. */
export function decide(facts: AttemptFacts): Decision {
  const info = OUTCOME_CLASSES[facts.class];
  const burned = facts.burned + (info.burnsAttempt ? 1 : 0);
  if (facts.class === 'ok') return { outcome: 'delivered', step: facts.step, burned };

  if (!info.burnsAttempt) {
    const wait = OURS_RETRY_MS * 2 ** Math.min(6, Math.max(0, facts.n - facts.burned - 1));
    return {
      outcome: 'retrying',
      dueMs: Math.min(facts.nowMs + wait, facts.deadlineMs),
      step: facts.step,
      burned,
    };
  }
  if (!info.retried) {
    return {
      outcome: 'dead',
      reason: facts.class === 'http_410' ? 'gone' : 'not_retried',
      step: facts.step,
      burned,
    };
  }
  // A manual attempt leaves the schedule as it was, but a receiver that asks for time gets it.
  const manual = facts.resumeAtMs !== null;
  if (!manual && facts.class === 'http_4xx' && !facts.policy.retry4xx) {
    return { outcome: 'dead', reason: 'not_retried', step: facts.step, burned };
  }
  if (!manual && burned >= facts.policy.maxAttempts) {
    return { outcome: 'dead', reason: 'max_attempts', step: facts.step, burned };
  }
  const slowDown = facts.class === 'http_429' && facts.retryAfterSeconds === null;
  const wait = manual ? 0 : waitMs(facts.policy, facts.step, `${facts.delivery}#${facts.n}`, slowDown);
  if (wait === null) return { outcome: 'dead', reason: 'max_attempts', step: facts.step, burned };
  const own = manual ? Math.max(facts.resumeAtMs as number, facts.nowMs) : facts.nowMs + wait;
  const asked = facts.retryAfterSeconds === null ? 0 : facts.nowMs + facts.retryAfterSeconds * 1_000;
  return {
    outcome: 'retrying',
    dueMs: Math.min(Math.max(own, asked), facts.deadlineMs),
    step: manual ? facts.step : facts.step + 1,
    burned: manual ? facts.burned : burned,
  };
}
