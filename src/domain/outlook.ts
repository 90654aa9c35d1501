/**
 * What is still to come, for people: an endpoint's schedule as times after the first attempt, and an unfinished
 * delivery's next attempt and last moment. Called by the API's views; nothing is decided here (decide.ts does).
 */
import { type EndpointStanding, endpointWait } from './endpoint-wait.ts';
import type { RetryPolicy } from './retry-policy.ts';
import { waitBounds } from './schedule.ts';
import { clockTime, duration } from './sentences.ts';

/** A longer schedule is shown by its beginning; its numbers and sentence are of the whole. */
const SHOWN = 50;

export interface PlannedAttempt {
  readonly n: number;
  readonly earliestMs: number; // after the first attempt
  readonly latestMs: number;
}

export interface RetrySchedule {
  readonly sentence: string;
  readonly deadlineMs: number;
  /** The most attempts there can be: of max_attempts, of a list's steps, and of what fits before the deadline. */
  readonly maxAttempts: number;
  readonly attempts: readonly PlannedAttempt[]; // the first 50
}

/** The schedule when every attempt fails at once with an outcome of pace `normal` and without Retry-After. */
export function retrySchedule(policy: RetryPolicy): RetrySchedule {
  const attempts: PlannedAttempt[] = [{ n: 1, earliestMs: 0, latestMs: 0 }];
  let [earliestMs, latestMs, n, certain, longestMs] = [0, 0, 1, 1, 0];
  for (; n < policy.maxAttempts; n++) {
    const wait = waitBounds(policy, n - 1);
    if (wait === null || earliestMs + wait.minMs >= policy.deadlineMs) break;
    earliestMs += wait.minMs;
    latestMs += wait.maxMs;
    longestMs = Math.max(longestMs, wait.maxMs);
    if (latestMs < policy.deadlineMs) certain = n + 1;
    if (n < SHOWN) attempts.push({ n: n + 1, earliestMs, latestMs: Math.min(latestMs, policy.deadlineMs) });
  }
  const sentence = sentenceOf(policy, { certain, possible: n, longestMs }, attempts[1]);
  return { sentence, deadlineMs: policy.deadlineMs, maxAttempts: n, attempts };
}

function sentenceOf(
  policy: RetryPolicy,
  found: { certain: number; possible: number; longestMs: number },
  second: PlannedAttempt | undefined,
): string {
  const { certain, possible } = found;
  const planned =
    policy.kind === 'schedule' ? Math.min(policy.stepsMs.length + 1, policy.maxAttempts) : possible;
  const cut = possible < planned ? ` ${planned - possible} more would come after the deadline.` : '';
  if (second === undefined) return `One attempt and no more.${cut}`;
  const count = certain === possible ? `${possible}` : `${certain} to ${possible}`;
  const wait = between(duration(second.earliestMs), duration(second.latestMs));
  const longest = possible > 2 ? `, the longest wait up to ${duration(found.longestMs)}` : '';
  return `${count} attempts within ${duration(policy.deadlineMs)}: the second ${wait} after the first${longest}.${cut}`;
}

const between = (a: string, b: string): string => (a === b ? a : `${a} to ${b}`);

export interface OutlookFacts {
  readonly state: 'ready' | 'sending' | 'retrying' | 'held';
  readonly n: number; // attempts made, the one under way included
  readonly step: number;
  readonly burned: number;
  readonly dueMs: number; // epoch
  readonly deadlineMs: number; // epoch
  readonly resumeAtMs: number | null; // set: a manual attempt; its failure goes back to this due time
  readonly cancelRequested: boolean;
  readonly nowMs: number; // the database's
  readonly timeoutMs: number;
  readonly policy: RetryPolicy;
  readonly endpoint: EndpointStanding | null; // null: it is sent whatever the state of its endpoint
}

export interface Outlook {
  /** Of the next attempt, or of the one after the attempt under way; null: none is to be expected, or not by time. */
  readonly earliestMs: number | null;
  /** null also when its endpoint, not the schedule, decides: then nobody knows. */
  readonly latestMs: number | null;
  readonly sentence: string;
}

/** When an unfinished delivery is tried next, what it waits for until then, and when it gives up. */
export function outlook(facts: OutlookFacts): Outlook {
  const { endpoint, nowMs } = facts;
  if (facts.cancelRequested)
    return none('Cancelled: it ends with the answer to the attempt under way, delivered if that is a 2xx.');
  if (endpoint?.state === 'disabled' || endpoint?.state === 'deleted') return endsWith(facts, endpoint.state);
  const wait = endpoint === null ? null : endpointWait(endpoint, nowMs);
  const end = ending(facts);
  if (facts.state === 'held')
    return none(`Waits for its endpoint, which ${wait?.which ?? 'takes nothing now'}; ${end}.`);
  const window = facts.state === 'sending' ? afterFailure(facts) : due(facts);
  const start = facts.state === 'sending' ? `Attempt ${facts.n} is under way; if it fails, ` : '';
  if (window === null) return none(`${start === '' ? 'No further attempt by itself; ' : start}${end}.`);
  const [earliestMs, latestMs] = window;
  const next = `${start === '' ? 'Attempt' : `${start}attempt`} ${facts.n + 1}`;
  if (wait?.lasting === true) {
    const soon = earliestMs <= nowMs;
    const when = soon ? '' : `, ${clockTime(earliestMs)} at the earliest,`;
    const sentence = `${next}${when} waits for its endpoint, which ${wait.which}; ${end}.`;
    return { earliestMs: soon ? null : earliestMs, latestMs: null, sentence };
  }
  return { earliestMs, latestMs, sentence: `${next} ${whenOf(facts, window)}; ${end}.` };
}

function whenOf(facts: OutlookFacts, [earliestMs, latestMs]: [number, number]): string {
  if (facts.state !== 'sending' && earliestMs <= facts.nowMs) return 'is due now';
  const [from, to] = [clockTime(earliestMs), clockTime(latestMs)];
  return from === to ? from : `between ${from} and ${to}`;
}

function endsWith(facts: OutlookFacts, state: 'disabled' | 'deleted'): Outlook {
  const why = `its endpoint ${state === 'disabled' ? 'is disabled' : 'was deleted'}`;
  return none(
    facts.state === 'sending'
      ? `Ends with the answer to the attempt under way, delivered if that is a 2xx: ${why}.`
      : `Ends as cancelled in a moment: ${why}.`,
  );
}

function none(sentence: string): Outlook {
  return { earliestMs: null, latestMs: null, sentence };
}

function due(facts: OutlookFacts): [number, number] | null {
  return facts.dueMs >= facts.deadlineMs ? null : [facts.dueMs, facts.dueMs];
}

/** When the attempt after the one under way would come. */
function afterFailure(facts: OutlookFacts): [number, number] | null {
  if (facts.resumeAtMs !== null) {
    const resumeMs = Math.max(facts.resumeAtMs, facts.nowMs);
    return resumeMs >= facts.deadlineMs ? null : [resumeMs, resumeMs];
  }
  const wait = facts.burned + 1 >= facts.policy.maxAttempts ? null : waitBounds(facts.policy, facts.step);
  if (wait === null || facts.nowMs + wait.minMs >= facts.deadlineMs) return null;
  const latestMs = Math.min(facts.nowMs + facts.timeoutMs + wait.maxMs, facts.deadlineMs);
  return [Math.round(facts.nowMs + wait.minMs), Math.round(latestMs)];
}

function ending(facts: OutlookFacts): string {
  const gone = `gives up ${clockTime(facts.deadlineMs)}`;
  // An attempt that is due is made, also under a policy that has since become stricter; a manual one counts nowhere.
  const sending = facts.state === 'sending';
  const counted = facts.burned + (sending && facts.resumeAtMs === null ? 1 : 0);
  const left = Math.max(sending ? 0 : 1, facts.policy.maxAttempts - counted);
  if (sending && left === 0) return 'it is dead: no attempts are left';
  if (facts.dueMs >= facts.deadlineMs) return gone;
  return `${gone}, or after ${left} more attempt${left === 1 ? '' : 's'}`;
}
