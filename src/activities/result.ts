/** From a request's result to what is written: class → decision → attempt record. Called by sender.ts; no I/O. */
import type { LoadedDelivery } from '../db/load.ts';
import type { AttemptRecord } from '../db/verbs.ts';
import { OUTCOME_CLASSES, type OutcomeClass } from '../domain/classes.ts';
import { type Decision, decide } from '../domain/decide.ts';
import { parseRetryAfter } from '../domain/retry-after.ts';
import { DEFAULT_POLICY } from '../domain/retry-policy.ts';
import type { PostResult } from '../egress/post.ts';
import { newId } from '../ids.ts';
import type { Claimed } from './attempt.ts';
import type { PreparedEndpoint } from './prepare.ts';

export interface ResultFacts {
  row: LoadedDelivery;
  endpoint: PreparedEndpoint | undefined; // undefined: could not be prepared
  claimed: Claimed;
  result: PostResult | undefined;
  logged: string;
  bytes: number;
  nowMs: number; // database-corrected
  ownWorkflow: (delivery: LoadedDelivery) => boolean;
}

/** With these and a Retry-After the receiver speaks for the endpoint, not for one delivery. */
const PAUSING = new Set([429, 503]);

/** What an attempt says of its endpoint. Whoever tries an endpoint out must not break its circuit. */
function healthOf(outcomeClass: OutcomeClass, test: boolean): AttemptRecord['health'] {
  const { health } = OUTCOME_CLASSES[outcomeClass];
  return test && health !== 'ok' ? 'none' : health;
}

export function classifyResult(facts: ResultFacts): { record: AttemptRecord; class: OutcomeClass } {
  const { row, endpoint, claimed, result, nowMs } = facts;
  const outcomeClass: OutcomeClass = result?.class ?? 'local';
  const asked = result?.retryAfter == null ? null : parseRetryAfter(result.retryAfter, nowMs);
  const decided = decide({
    delivery: row.delivery,
    n: claimed.n!,
    step: row.step,
    burned: row.burned,
    class: outcomeClass,
    retryAfterSeconds: asked,
    nowMs,
    deadlineMs: row.deadline.getTime(),
    resumeAtMs: row.resume_at?.getTime() ?? null,
    policy: endpoint?.policy ?? DEFAULT_POLICY,
  });
  const test = row.kind === 'test';
  // A test is tried once. What the schedule would have done stays in its log.
  const decision: Decision =
    test && decided.outcome === 'retrying'
      ? { ...decided, outcome: 'dead', reason: 'max_attempts', rule: 'test' }
      : decided;
  const startedAtMs = nowMs - (result?.durationMs ?? 0);
  const record: AttemptRecord = {
    id: newId('att', startedAtMs),
    delivery: row.delivery,
    endpoint: row.endpoint,
    token: claimed.token!,
    n: claimed.n!,
    outcome: decision.outcome,
    reason: decision.outcome === 'dead' ? decision.reason : null,
    due_at: decision.outcome === 'retrying' ? decision.dueMs : null,
    step: decision.step,
    burned: decision.burned,
    workflow: decision.outcome === 'retrying' && facts.ownWorkflow(row),
    started_at: startedAtMs,
    duration_ms: result?.durationMs ?? 0,
    status: result?.status ?? null,
    class: outcomeClass,
    phase: result?.phase ?? 'policy',
    error:
      result === undefined
        ? 'The request could not be prepared: a sealed value did not open, or the event is damaged.'
        : result.error,
    request_url: endpoint?.row.url ?? '',
    request_headers: facts.logged,
    request_bytes: facts.bytes,
    head_bytes: result?.headBytes ?? null,
    response_headers:
      result === undefined || result.status === null ? null : JSON.stringify(result.responseHeaders),
    response_body: result === undefined || result.status === null ? null : result.responseBody,
    response_truncated: result?.responseTruncated ?? false,
    fresh_retry: result?.freshRetry ?? false,
    rule: decision.rule,
    own_due_at: decision.ownDueMs,
    retry_after_s: outcomeClass === 'ok' ? null : asked,
    health: healthOf(outcomeClass, test),
    epoch: claimed.epoch,
    revision: endpoint?.row.revision ?? 0,
    pause_until: test || asked === null || !PAUSING.has(result?.status ?? 0) ? null : nowMs + asked * 1_000,
  };
  return { record, class: outcomeClass };
}
