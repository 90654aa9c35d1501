/**
 * What becomes of a delivery after an attempt: the one place that says so. Called by src/activities/result.ts;
 * the answer is written by the record call. Times are epoch milliseconds.
 */
import { OUTCOME_CLASSES, type OutcomeClass } from './classes.ts';
import { RETRY_AFTER_CAP_SECONDS } from './retry-after.ts';
import type { RetryPolicy } from './retry-policy.ts';
import type { Rule } from './rules.ts';
import { hashUnit, waitMs } from './schedule.ts';

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

/** What follows, and why: `rule` decided, `ownDueMs` is what the delivery's own schedule said (null: nothing). */
export type Decision = Basis &
  (
    | { readonly outcome: 'delivered' }
    | { readonly outcome: 'retrying'; readonly dueMs: number }
    | { readonly outcome: 'dead'; readonly reason: DeadReason }
  );

interface Basis {
  readonly rule: Rule;
  readonly ownDueMs: number | null;
  readonly step: number;
  readonly burned: number;
}

/** Why a delivery is dead. `deadline` is also written by the finish call. */
export const DEAD_REASONS = ['deadline', 'max_attempts', 'gone', 'not_retried'] as const;
export type DeadReason = (typeof DEAD_REASONS)[number];

/** Faults of ours are tried again soon: they say nothing about the receiver and burn nothing. */
const OURS_RETRY_MS = 5_000;
/** What a fault of ours hit at once, a proxy's outage for one, does not come back at once. */
const OURS_JITTER = 0.5;

/** At most this much later than asked for, so that what was sent away together does not come back together. */
const ASKED_JITTER = 0.1;
const ASKED_JITTER_MS = 60_000;

/** Decides. A wait that would reach the deadline ends at the deadline: dead then, not before, and not tried again. */
export function decide(facts: AttemptFacts): Decision {
  const { policy, nowMs } = facts;
  const info = OUTCOME_CLASSES[facts.class];
  // A manual attempt leaves the schedule as it was, but a receiver that asks for time gets it.
  const manual = facts.resumeAtMs !== null;
  const burned = facts.burned + (info.burnsAttempt && !manual ? 1 : 0);
  const dead = (reason: DeadReason): Decision => {
    return { outcome: 'dead', reason, rule: reason, ownDueMs: null, step: facts.step, burned };
  };
  if (facts.class === 'ok')
    return { outcome: 'delivered', rule: 'delivered', ownDueMs: null, step: facts.step, burned };
  if (info.pace === 'never') return dead(facts.class === 'http_410' ? 'gone' : 'not_retried');
  if (manual) {
    const dueMs = Math.max(facts.resumeAtMs as number, nowMs);
    return later(facts, dueMs, { rule: 'manual', ownDueMs: dueMs, step: facts.step, burned });
  }
  if (!info.burnsAttempt && info.pace === 'minute') {
    // Step 0 always has a wait; the schedule stays where it was.
    const dueMs = Math.ceil(nowMs + (waitMs(policy, 0, jitterKey(facts), 'minute') as number));
    return later(facts, dueMs, { rule: 'ours', ownDueMs: dueMs, step: facts.step, burned });
  }
  if (info.pace === 'soon') {
    const tries = Math.max(0, facts.n - facts.burned - 1);
    const spread = 1 + OURS_JITTER * hashUnit(jitterKey(facts));
    const dueMs = Math.ceil(nowMs + OURS_RETRY_MS * 2 ** Math.min(6, tries) * spread);
    return later(facts, dueMs, { rule: 'ours', ownDueMs: dueMs, step: facts.step, burned });
  }
  if (facts.class === 'http_4xx' && !policy.retry4xx) return dead('not_retried');
  if (burned >= policy.maxAttempts) return dead('max_attempts');
  // A receiver that says when is taken at its word: no slowing down beyond that.
  const pace = facts.retryAfterSeconds === null ? info.pace : 'normal';
  const wait = waitMs(policy, facts.step, jitterKey(facts), pace);
  if (wait === null) return dead('max_attempts');
  const own = Math.ceil(nowMs + wait);
  const rule = pace === 'normal' ? 'schedule' : pace;
  return later(facts, own, { rule, ownDueMs: own, step: facts.step + 1, burned });
}

/** Not before what the receiver asked for, and not at all from the deadline on. */
function later(facts: AttemptFacts, ownMs: number, basis: Basis): Decision {
  const asked = askedMs(facts);
  const dueMs = Math.max(ownMs, asked);
  if (dueMs >= facts.deadlineMs)
    return { outcome: 'retrying', ...basis, rule: 'deadline', dueMs: facts.deadlineMs };
  return { outcome: 'retrying', ...basis, rule: asked > ownMs ? 'retry_after' : basis.rule, dueMs };
}

/** When the receiver wants it again, with jitter upward; 0 when it said nothing. */
function askedMs(facts: AttemptFacts): number {
  if (facts.retryAfterSeconds === null) return 0;
  const asked = Math.min(facts.retryAfterSeconds, RETRY_AFTER_CAP_SECONDS) * 1_000;
  const jitter = Math.min(asked * ASKED_JITTER, ASKED_JITTER_MS) * hashUnit(jitterKey(facts));
  return Math.ceil(facts.nowMs + asked + jitter);
}

const jitterKey = (facts: AttemptFacts): string => `${facts.delivery}#${facts.n}`;
