/** Deliveries and attempts as the API shows them; shared by deliveries.ts and event-reads.ts. */
import { z } from '@hono/zod-openapi';
import type { AttemptRow } from '../db/attempts.ts';
import type { DeliveryFilter, DeliveryPlan, DeliveryRow } from '../db/deliveries.ts';
import type { Operated as OperatedRow } from '../db/operators.ts';
import { OUTCOME_CLASSES, type OutcomeClass } from '../domain/classes.ts';
import { makeId } from '../domain/ids.ts';
import { outlook } from '../domain/outlook.ts';
import { askedSeconds, RETRY_AFTER_CAP_SECONDS } from '../domain/retry-after.ts';
import type { RetryPolicy } from '../domain/retry-policy.ts';
import { explainRule, type RetryAfterSaid, RULE_NAMES, RULES, type Rule } from '../domain/rules.ts';
import { timestamp } from './schemas.ts';
import { bodyText } from './text.ts';

export const STATES = ['ready', 'sending', 'retrying', 'held', 'delivered', 'dead', 'cancelled'] as const;
export const KINDS = ['live', 'replay', 'test'] as const;
const state = z.enum(STATES);
export const classes = Object.keys(OUTCOME_CLASSES) as [OutcomeClass, ...OutcomeClass[]];

const OUTLOOK =
  'Attempt 4 Thursday 3 Dec 12:04:31 UTC; gives up Thursday 3 Dec 14:00:00 UTC, or after 27 more attempts.';
export const Delivery = z
  .object({
    id: z.string(),
    event: z.string(),
    event_type: z.string(),
    endpoint: z.string(),
    sequence: z.int(),
    state,
    reason: z.string().nullable().openapi({ description: 'Why it is dead or cancelled' }),
    kind: z.enum(KINDS),
    generation: z.int().openapi({ description: '1, and one more for each replay' }),
    attempts: z.int(),
    last_status: z.int().nullable(),
    last_class: z.string().nullable(),
    created_at: timestamp,
    next_attempt_at: timestamp
      .nullable()
      .openapi({ description: 'null: none is planned, or one is under way, or it waits for its endpoint' }),
    next_attempt_earliest: timestamp.nullable().openapi({
      description: 'Of the next attempt; while one is under way, of the one that follows should it fail',
    }),
    next_attempt_latest: timestamp
      .nullable()
      .openapi({ description: 'null also while its endpoint is paused, fails or recovers: nobody knows' }),
    deadline: timestamp.nullable(),
    gives_up_at: timestamp
      .nullable()
      .openapi({ description: 'When it is dead at the latest; null: it has ended' }),
    outlook: z
      .string()
      .nullable()
      .openapi({ description: 'What is still to come, as a sentence; null: nothing', example: OUTLOOK }),
    finished_at: timestamp.nullable(),
    cancel_requested: z.boolean(),
  })
  .openapi('Delivery');

export const Operated = z
  .object({ id: z.string(), state, generation: z.int(), attempts: z.int() })
  .openapi('OperatedDelivery');

const headerList = z.array(z.tuple([z.string(), z.string()]));
const body = { body: z.string().nullable(), body_encoding: z.enum(['text', 'base64']).nullable() };
const ruleList = Object.entries(RULES)
  .map(([rule, meaning]) => `\`${rule}\`: ${meaning}`)
  .join(' ');
export const Attempt = z
  .object({
    id: z.string(),
    n: z.int(),
    generation: z.int(),
    started_at: timestamp,
    duration_ms: z.number().nullable().openapi({ description: 'null: the worker was lost' }),
    class: z.string(),
    phase: z.string().nullable(),
    error: z.string().nullable(),
    decision: z.enum(['delivered', 'retrying', 'dead', 'cancelled', 'unknown']),
    rule: z
      .enum(RULE_NAMES)
      .nullable()
      .openapi({ description: `Which rule decided. ${ruleList}` }),
    own_next_attempt_at: timestamp
      .nullable()
      .openapi({ description: "When the delivery's own schedule would have tried again" }),
    retry_after_seconds: z.int().nullable().openapi({
      description:
        'What counted of what the receiver asked for, at most a day; null: nothing, or nonsense. `why` says when it asked for more, or was not understood.',
    }),
    next_attempt_at: timestamp.nullable().openapi({ description: 'null: no further attempt was planned' }),
    why: z.string().nullable().openapi({ description: 'The decision as a sentence, for people; may change' }),
    fresh_retry: z.boolean(),
    request: z.object({
      method: z.literal('POST'),
      url: z.string(),
      headers: headerList.openapi({ description: 'As sent; values of custom headers as their length' }),
      head_bytes: z.int().nullable(),
      body_bytes: z.int(),
      ...body,
    }),
    response: z
      .object({ status: z.int(), headers: headerList, ...body, truncated: z.boolean() })
      .nullable()
      .openapi({ description: 'null: there was none' }),
  })
  .openapi('Attempt');

export const NO_FILTER: DeliveryFilter = {
  endpoint: null,
  event: null,
  type: null,
  state: null,
  status: null,
  class: null,
  kind: null,
  sinceId: null,
  untilId: null,
  since: null,
  until: null,
};

/** The smallest delivery id of a time: ids are in the order of time. */
export function lowestId(at: Date): string {
  return makeId('dlv', Math.max(0, at.getTime()), '0'.repeat(16));
}

export function deliveryView(row: DeliveryRow) {
  const next = outlookOf(row);
  return {
    id: row.id,
    event: row.event,
    event_type: row.event_type,
    endpoint: row.endpoint,
    sequence: row.sequence,
    state: row.state,
    reason: row.reason,
    kind: row.kind,
    generation: row.generation,
    attempts: row.n,
    last_status: row.last_status,
    last_class: row.last_class,
    created_at: row.created_at,
    next_attempt_at: row.state === 'sending' ? null : (next?.latest ?? null),
    next_attempt_earliest: next?.earliest ?? null,
    next_attempt_latest: next?.latest ?? null,
    deadline: row.deadline,
    gives_up_at: row.deadline,
    outlook: next?.sentence ?? null,
    finished_at: row.finished_at,
    cancel_requested: row.cancel_requested,
  };
}

function outlookOf(row: DeliveryRow) {
  const { plan, due_at, deadline, state } = row;
  if (plan === null || due_at === null || deadline === null) return null;
  const seen = outlook({
    state: state as 'ready' | 'sending' | 'retrying' | 'held',
    n: row.n,
    step: plan.step,
    burned: plan.burned,
    dueMs: due_at.getTime(),
    deadlineMs: deadline.getTime(),
    resumeAtMs: plan.resume_at_ms,
    cancelRequested: row.cancel_requested,
    nowMs: plan.now_ms,
    timeoutMs: plan.timeout_ms,
    policy: plan.retry_policy as RetryPolicy,
    endpoint: row.kind === 'test' ? null : standing(plan.endpoint),
  });
  const time = (ms: number | null) => (ms === null ? null : new Date(ms));
  return { earliest: time(seen.earliestMs), latest: time(seen.latestMs), sentence: seen.sentence };
}

function standing({ state, mode, health, probe_at_ms, pause_until_ms }: DeliveryPlan['endpoint']) {
  return { state, mode, health, probeAtMs: probe_at_ms, pauseUntilMs: pause_until_ms };
}

/** What the record holds is capped, and null also when it was not understood: then the header itself is looked at. */
function retryAfterSaid(row: AttemptRow): RetryAfterSaid | null {
  const counted = row.retry_after_s;
  if (counted !== null && counted < RETRY_AFTER_CAP_SECONDS) return { askedSeconds: counted };
  const headers: [string, string][] = JSON.parse(row.response_headers ?? '[]');
  const given = headers.filter(([name]) => name === 'retry-after').map(([, value]) => value);
  if (counted === null) return given.length === 0 || row.class === 'ok' ? null : 'unreadable';
  const answeredMs = row.started_at.getTime() + (row.duration_ms ?? 0);
  const asked = given.length === 0 ? null : askedSeconds(given.join(', '), answeredMs);
  return { askedSeconds: Math.max(counted, asked ?? 0) };
}

export function operatedView(row: OperatedRow) {
  return { id: row.delivery, state: row.state, generation: row.generation, attempts: row.n };
}

/** @param sent the bytes that every attempt of this delivery sends; null when the event is no longer kept. */
export function attemptView(row: AttemptRow, sent: Buffer | null) {
  const nothing = { body: null, body_encoding: null };
  // A delivery whose time is over waits for its deadline, but not for an attempt.
  const next = row.rule === 'deadline' ? null : row.next_due_at;
  return {
    id: row.id,
    n: row.n,
    generation: row.generation,
    started_at: row.started_at,
    duration_ms: row.duration_ms,
    class: row.class,
    phase: row.phase,
    error: row.error,
    decision: row.decision,
    rule: row.rule as Rule | null,
    own_next_attempt_at: row.own_due_at,
    retry_after_seconds: row.retry_after_s,
    next_attempt_at: next,
    why: explainRule({
      rule: row.rule,
      retryAfter: retryAfterSaid(row),
      ownDueMs: row.own_due_at?.getTime() ?? null,
      nextMs: next?.getTime() ?? null,
    }),
    fresh_retry: row.fresh_retry,
    request: {
      method: 'POST',
      url: row.request_url,
      headers: JSON.parse(row.request_headers),
      head_bytes: row.head_bytes,
      body_bytes: row.request_bytes,
      ...(sent === null ? nothing : bodyText(sent)),
    },
    response:
      row.status === null
        ? null
        : {
            status: row.status,
            headers: JSON.parse(row.response_headers ?? '[]'),
            ...(row.response_body === null ? nothing : bodyText(row.response_body)),
            truncated: row.response_truncated,
          },
  };
}
