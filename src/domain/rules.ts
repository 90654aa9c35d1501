/**
 * Why an attempt was followed by what followed: the closed list of rules. decide.ts and the record and reap calls
 * (migrations/functions/verbs.sql) name one per attempt; the API shows it with the sentence from here, and
 * docs/states.md lists them.
 */
import { RETRY_AFTER_CAP_SECONDS } from './retry-after.ts';
import { clockTime, duration } from './sentences.ts';

/** Rule → what it means. Of those that end a delivery, the names are its reasons. */
export const RULES = {
  delivered: 'The receiver took it.',
  schedule: 'The next step of the schedule.',
  slower: 'The schedule, slowed down: the receiver or its gateway is overloaded.',
  minute: 'The schedule, but at least a minute: the receiver may still be at work.',
  retry_after: 'The receiver asked for more time than the schedule would have given it.',
  ours: 'The fault was ours: tried again soon, or after a minute if the receiver may have it, without counting.',
  worker_lost: 'The worker vanished before it wrote down the answer: tried again at once, without counting.',
  manual: 'A manual attempt: the schedule stays as it was.',
  deadline: 'The next attempt would come after the deadline: there is none.',
  max_attempts: 'All attempts are used up.',
  test: 'A test is tried once.',
  not_retried: 'This outcome is not retried.',
  gone: 'The receiver says that the endpoint is gone.',
  requested: 'It was cancelled while the attempt was under way.',
  endpoint_disabled: 'Its endpoint was disabled while the attempt was under way.',
  endpoint_deleted: 'Its endpoint was deleted while the attempt was under way.',
} as const;

export type Rule = keyof typeof RULES;

export const RULE_NAMES = Object.keys(RULES) as [Rule, ...Rule[]];

export interface Followed {
  readonly rule: string | null; // null: written by an older version
  readonly retryAfter: RetryAfterSaid | null; // null: the receiver said nothing, or it did not matter
  readonly ownDueMs: number | null;
  readonly nextMs: number | null; // null: there is no next attempt
}

/** A Retry-After, as received. `unreadable`: neither seconds nor a date, so that the schedule alone decided. */
export type RetryAfterSaid = { readonly askedSeconds: number } | 'unreadable';

function saidOf(said: RetryAfterSaid): string {
  if (said === 'unreadable') return 'its Retry-After was ignored: it is neither seconds nor a date';
  const { askedSeconds } = said;
  if (askedSeconds <= RETRY_AFTER_CAP_SECONDS) return `Retry-After asked for ${askedSeconds} s`;
  const asked = Number.isSafeInteger(askedSeconds) ? `${askedSeconds} s` : 'longer than can be counted';
  return `Retry-After asked for ${asked}, of which ${duration(RETRY_AFTER_CAP_SECONDS * 1_000)} is the most that counts`;
}

/** The rule as a sentence with its times, UTC; null for a rule this version does not know. */
export function explainRule(followed: Followed): string | null {
  const { rule } = followed;
  if (rule === null || !Object.hasOwn(RULES, rule)) return null;
  const parts = [RULES[rule as Rule].replace(/\.$/, '')];
  if (followed.retryAfter !== null) parts.push(saidOf(followed.retryAfter));
  if (followed.ownDueMs !== null && followed.ownDueMs !== followed.nextMs)
    parts.push(`its own schedule said ${clockTime(followed.ownDueMs)}`);
  if (followed.nextMs !== null) parts.push(`next attempt ${clockTime(followed.nextMs)}`);
  return `${parts.join('; ')}.`;
}
