/** Days of a failing delivery in seconds: the real workflow, decisions and schedule, with a clock that jumps. */
import { Context } from '@temporalio/activity';
import { WorkflowFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { Worker } from '@temporalio/worker';
import { beforeAll, describe, expect, it } from 'vitest';
import type { OutcomeClass } from '../../src/domain/classes.ts';
import { decide } from '../../src/domain/decide.ts';
import { retrySchedule } from '../../src/domain/outlook.ts';
import { DEFAULT_POLICY, type RetryPolicy, STANDARD_WEBHOOKS_POLICY } from '../../src/domain/retry-policy.ts';
import { ensureWorkflowBundle } from '../../src/temporal/bundle.ts';
import {
  type Activities,
  type AttemptOutcome,
  DEAD_LETTERED,
  DELIVERY_WORKFLOW,
  type DeliveryInput,
  type DeliveryResult,
  deliveryWorkflowId,
  LANE_QUEUES,
} from '../../src/workflows/contract.ts';
import { startTimeSkipping } from '../support/time-skipping.ts';

const HOUR = 3_600_000;
/** For the worker's and the server's own work, which takes real time. */
const WORK_MS = 10_000;

let environment: TestWorkflowEnvironment;
beforeAll(async () => {
  environment = await startTimeSkipping();
}, 300_000);

interface Attempt {
  n: number;
  atMs: number;
  dueMs: number; // when it was planned
}

type Answer = { class: OutcomeClass; retryAfterSeconds?: number };

/** A delivery's row and its receiver, in the server's time. Refuses early attempts, as a claim does. */
function makeDelivery(policy: RetryPolicy, answer: (n: number) => Answer) {
  const attempts: Attempt[] = [];
  let row = { n: 0, step: 0, burned: 0, dueMs: 0, deadlineMs: 0 };
  let endedMs = 0;

  const wait = (untilMs: number, last: OutcomeClass): AttemptOutcome => {
    const { n } = row;
    return {
      kind: 'wait',
      state: 'retrying',
      untilMs,
      attempts: n,
      nextAttempt: n + 1,
      generation: 1,
      class: last,
    };
  };
  const attemptDelivery = async ({ deliveryId }: { deliveryId: string }): Promise<AttemptOutcome> => {
    const nowMs = Context.current().info.currentAttemptScheduledTimestampMs;
    if (row.n === 0) row = { ...row, dueMs: nowMs, deadlineMs: nowMs + policy.deadlineMs };
    const end = (state: 'delivered' | 'dead', reason?: string): AttemptOutcome => {
      endedMs = nowMs;
      return { kind: 'ended', state, attempts: row.n, ...(reason === undefined ? {} : { reason }) };
    };
    if (nowMs >= row.deadlineMs) return end('dead', 'deadline');
    if (nowMs < row.dueMs) return wait(row.dueMs, 'http_5xx');
    const n = row.n + 1;
    attempts.push({ n, atMs: nowMs, dueMs: row.dueMs });
    const got = answer(n);
    const decision = decide({
      delivery: deliveryId,
      n,
      step: row.step,
      burned: row.burned,
      class: got.class,
      retryAfterSeconds: got.retryAfterSeconds ?? null,
      nowMs,
      deadlineMs: row.deadlineMs,
      resumeAtMs: null,
      policy,
    });
    row = { ...row, n, step: decision.step, burned: decision.burned };
    if (decision.outcome === 'delivered') return end('delivered');
    if (decision.outcome === 'dead') return end('dead', decision.reason);
    row.dueMs = decision.dueMs;
    return wait(decision.dueMs, got.class);
  };
  return { attempts, attemptDelivery, row: () => row, endedMs: () => endedMs };
}

/** Runs delivery/<id> to its end on workers of its own. */
async function live(id: string, attemptDelivery: Activities['attemptDelivery']): Promise<DeliveryResult> {
  const never = (): never => {
    throw new Error('nobody asked for this');
  };
  const activities: Partial<Activities> = { attemptDelivery, resendDelivery: never, cancelDelivery: never };
  const { nativeConnection: connection, client, namespace } = environment;
  const first = await Worker.create({
    connection,
    namespace: namespace ?? 'default',
    taskQueue: LANE_QUEUES.first,
    workflowBundle: { codePath: await ensureWorkflowBundle() },
    activities,
  });
  const retry = await Worker.create({
    connection,
    namespace: namespace ?? 'default',
    taskQueue: LANE_QUEUES.retry,
    activities,
  });
  return first.runUntil(
    retry.runUntil(() =>
      client.workflow.execute<(input: DeliveryInput) => Promise<DeliveryResult>>(DELIVERY_WORKFLOW, {
        workflowId: deliveryWorkflowId(id),
        taskQueue: LANE_QUEUES.first,
        args: [{ deliveryId: id, generation: 1 }],
      }),
    ),
  );
}

async function deadLettered(run: Promise<unknown>): Promise<string> {
  const error = await run.then(
    () => new Error('it was delivered'),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WorkflowFailedError);
  const cause = (error as WorkflowFailedError).cause;
  expect(cause).toBeInstanceOf(ApplicationFailure);
  expect((cause as ApplicationFailure).type).toBe(DEAD_LETTERED);
  return (cause as ApplicationFailure).message;
}

/** Each attempt when it was planned, never before. */
function expectPunctual(attempts: readonly Attempt[]): void {
  for (const { n, atMs, dueMs } of attempts) {
    expect(atMs, `attempt ${n}`).toBeGreaterThanOrEqual(dueMs);
    expect(atMs - dueMs, `attempt ${n}`).toBeLessThan(WORK_MS);
  }
}

/** Each attempt in the window that the endpoint shows for it. */
function expectShown(policy: RetryPolicy, attempts: readonly Attempt[]): void {
  const shown = retrySchedule(policy).attempts;
  for (const [i, { atMs }] of attempts.entries()) {
    const after = atMs - attempts[0]!.atMs;
    expect(after, `attempt ${i + 1}`).toBeGreaterThanOrEqual(shown[i]!.earliestMs);
    expect(after, `attempt ${i + 1}`).toBeLessThan(shown[i]!.latestMs + (i + 1) * WORK_MS);
  }
}

describe('a receiver that is down', () => {
  it('for good: every attempt of three days comes when it was planned, and then the delivery is dead', async () => {
    const delivery = makeDelivery(DEFAULT_POLICY, () => ({ class: 'http_5xx' }));
    const message = await deadLettered(live('dlv_down', delivery.attemptDelivery));
    const { attempts } = delivery;
    expect(message).toMatch(new RegExp(`^Dead after ${attempts.length} attempt\\(s\\): deadline`));
    expect(attempts.length).toBeGreaterThanOrEqual(21);
    expect(attempts.length).toBeLessThanOrEqual(30);
    expectPunctual(attempts);
    expectShown(DEFAULT_POLICY, attempts);
    // Dead at the deadline: not before, and without a last try.
    const late = delivery.endedMs() - delivery.row().deadlineMs;
    expect(late).toBeGreaterThanOrEqual(0);
    expect(late).toBeLessThan(WORK_MS);
    expect(attempts.at(-1)!.atMs).toBeLessThan(attempts[0]!.atMs + 72 * HOUR);
  });

  it('for the whole of a listed schedule: one attempt a step, and no more', async () => {
    const delivery = makeDelivery(STANDARD_WEBHOOKS_POLICY, () => ({ class: 'connect_refused' }));
    const message = await deadLettered(live('dlv_listed', delivery.attemptDelivery));
    const { attempts } = delivery;
    expectPunctual(attempts);
    expectShown(STANDARD_WEBHOOKS_POLICY, attempts);
    expect(attempts.length).toBeGreaterThanOrEqual(9);
    expect(message).toMatch(attempts.length === 10 ? /max_attempts/ : /deadline/);
  });

  it('for two days: it gets the delivery on the first attempt after that', async () => {
    let begunMs = 0;
    const delivery = makeDelivery(DEFAULT_POLICY, () => {
      const nowMs = Context.current().info.currentAttemptScheduledTimestampMs;
      begunMs ||= nowMs;
      return { class: nowMs - begunMs < 48 * HOUR ? 'http_503' : 'ok' };
    });
    const result = await live('dlv_back', delivery.attemptDelivery);
    const { attempts } = delivery;
    expect(result).toEqual({ state: 'delivered', attempts: attempts.length });
    expectPunctual(attempts);
    expect(attempts.at(-2)!.atMs - begunMs).toBeLessThan(48 * HOUR);
    expect(attempts.at(-1)!.atMs - begunMs).toBeLessThan(54 * HOUR + 60_000);
  });
});

describe('a receiver that asks for a day each time', () => {
  it('is left alone for a day each time, and dead at the deadline', async () => {
    const delivery = makeDelivery(DEFAULT_POLICY, () => ({ class: 'http_429', retryAfterSeconds: 10 ** 9 }));
    const message = await deadLettered(live('dlv_asks', delivery.attemptDelivery));
    expect(message).toMatch(/^Dead after 3 attempt\(s\): deadline, last /);
    expectPunctual(delivery.attempts);
    for (const [i, { atMs }] of delivery.attempts.entries()) {
      const since = atMs - delivery.attempts[0]!.atMs;
      expect(since).toBeGreaterThanOrEqual(i * 24 * HOUR);
      expect(since).toBeLessThan(i * (24 * HOUR + 60_000) + (i + 1) * WORK_MS);
    }
  });
});
