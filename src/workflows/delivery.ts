/**
 * delivery/<id>: one delivery that waits. Started by the relay (src/relay/relay.ts), by the group activity after a
 * failed first attempt, by the scanner, or by anyone with a Temporal client.
 *
 *   attempt ──▶ ended: delivered, cancelled ──▶ return
 *      ▲   └──▶ ended: dead ──▶ fail with DeadLettered
 *      │   └──▶ wait until (timer) ─┐
 *      └────────── wake ◀───────────┘  signal, update or time
 *
 * PostgreSQL decides whether an attempt may be made (the claim), so running twice, late or again is harmless. When
 * this workflow is cancelled or terminated, the delivery's row goes on without it.
 */
import { defineSearchAttributeKey, SearchAttributeType } from '@temporalio/common';
import {
  ActivityCancellationType,
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  defineUpdate,
  isCancellation,
  patched,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import {
  type Activities,
  type AttemptOutcome,
  CANCEL_UPDATE,
  DEAD_LETTERED,
  type DeliveryInput,
  type DeliveryResult,
  type DeliveryState,
  LANE_QUEUES,
  type Lane,
  type OperatorResult,
  REPLAY_SIGNAL,
  RESEND_UPDATE,
  SEARCH_ATTRIBUTES,
  STATE_QUERY,
  WAKE_SIGNAL,
} from './contract.ts';

// An attempt is decided inside its own deadline (≤ 30 s); the rest is waiting for slots and for PostgreSQL. The
// database is the only thing an activity fails for, so it is tried again without end.
const ATTEMPT_OPTIONS = {
  startToCloseTimeout: '3m',
  heartbeatTimeout: '60s',
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry: { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' },
} as const;

const proxies = {
  first: proxyActivities<Activities>({ ...ATTEMPT_OPTIONS, taskQueue: LANE_QUEUES.first }),
  retry: proxyActivities<Activities>({ ...ATTEMPT_OPTIONS, taskQueue: LANE_QUEUES.retry }),
  held: proxyActivities<Activities>({ ...ATTEMPT_OPTIONS, taskQueue: LANE_QUEUES.held }),
  bulk: proxyActivities<Activities>({ ...ATTEMPT_OPTIONS, taskQueue: LANE_QUEUES.bulk }),
};

const replaySignal = defineSignal(REPLAY_SIGNAL);
const wakeSignal = defineSignal(WAKE_SIGNAL);
const resendUpdate = defineUpdate<OperatorResult>(RESEND_UPDATE);
const cancelUpdate = defineUpdate<OperatorResult>(CANCEL_UPDATE);
const stateQuery = defineQuery<DeliveryState>(STATE_QUERY);

const stateAttribute = defineSearchAttributeKey(SEARCH_ATTRIBUTES.state, SearchAttributeType.KEYWORD);
const attemptAttribute = defineSearchAttributeKey(SEARCH_ATTRIBUTES.attempt, SearchAttributeType.INT);

/** A quarter of an hour: how long a delivery held for its endpoint sleeps before it reads its row again. */
const HELD_MS = 15 * 60_000;

/** Shorter waits are slept by the activity: a timer fires about a second late. */
const SHORT_MS = 1_000;

export async function delivery(input: DeliveryInput): Promise<DeliveryResult> {
  const { deliveryId } = input;
  let wake = false;
  let replays = 0;
  let operating = 0;
  const lines: string[] = [];
  const state: DeliveryState = {
    state: input.dueAt === undefined ? 'sending' : 'retrying',
    attempts: input.last?.attempts ?? 0,
    nextAttemptAt: input.dueAt === undefined ? null : new Date(input.dueAt).toISOString(),
    lastStatus: input.last?.status ?? null,
    lastClass: input.last?.class ?? null,
  };

  const operate = async (act: 'resendDelivery' | 'cancelDelivery'): Promise<OperatorResult> => {
    operating++;
    try {
      return await proxies.first[act]({ deliveryId });
    } finally {
      operating--;
      wake = true;
    }
  };
  setHandler(replaySignal, () => {
    replays++;
    wake = true;
  });
  setHandler(wakeSignal, () => {
    wake = true;
  });
  setHandler(resendUpdate, () => operate('resendDelivery'));
  setHandler(cancelUpdate, () => operate('cancelDelivery'));
  setHandler(stateQuery, () => state);

  try {
    let lane: Lane = input.lane ?? 'first';
    if (input.dueAt !== undefined) {
      lane = 'retry';
      const ms = input.dueAt - Date.now();
      if (ms > SHORT_MS && !wake)
        await condition(() => wake, ms, { summary: `next attempt in ${describe(ms)}` });
    }
    for (;;) {
      wake = false;
      while (replays > 0) {
        replays--;
        await proxies.first.resendDelivery({ deliveryId });
      }
      // The attempt finishes even when this workflow is cancelled meanwhile: its answer must not be lost.
      const summary = `attempt ${state.attempts + 1} POST`;
      const outcome: AttemptOutcome = await CancellationScope.nonCancellable(() =>
        proxies[lane].attemptDelivery.executeWithOptions({ summary }, [{ deliveryId }]),
      );
      show(outcome, state, lines);
      // Whoever asked for a replay while this attempt was made has got one: as with the API, one under way is enough.
      if (replays > 0 && outcome.made === true && patched('replay-while-sending')) replays = 0;

      if (outcome.kind === 'ended') {
        await condition(() => operating === 0);
        if (wake) continue; // an operator acted while the attempt was under way: read the row again
        if (outcome.state === 'dead') {
          const last = outcome.status ?? outcome.class ?? 'unknown';
          throw ApplicationFailure.nonRetryable(
            `Dead after ${outcome.attempts} attempt(s): ${outcome.reason ?? 'deadline'}, last ${last}. To send it again: ` +
              `POST /v1/tenants/{tenant}/deliveries/${deliveryId}/resend, or signal ${REPLAY_SIGNAL} with start (docs/temporal.md)`,
            DEAD_LETTERED,
          );
        }
        return { state: outcome.state, attempts: outcome.attempts };
      }

      lane = 'retry';
      markRetrying(outcome);
      if (workflowInfo().historyLength > 4_000 && replays === 0) {
        await condition(() => operating === 0);
        const dueAt = wake ? Date.now() : outcome.untilMs;
        const last = {
          attempts: outcome.attempts,
          status: state.lastStatus,
          class: state.lastClass ?? 'unknown',
        };
        await continueAsNew<typeof delivery>({ deliveryId, generation: outcome.generation, dueAt, last });
      }
      const until =
        outcome.state === 'held' ? Math.min(outcome.untilMs, Date.now() + HELD_MS) : outcome.untilMs;
      const ms = until - Date.now();
      if (ms > SHORT_MS && !wake) await condition(() => wake, ms, { summary: summaryOf(outcome, ms) });
      await condition(() => operating === 0);
    }
  } catch (error) {
    if (isCancellation(error)) {
      await CancellationScope.nonCancellable(() => proxies.first.disownDelivery({ deliveryId }));
    }
    throw error;
  }
}

function show(outcome: AttemptOutcome, state: DeliveryState, lines: string[]): void {
  const known = outcome.class ?? null;
  state.attempts = outcome.attempts;
  state.lastStatus = outcome.status ?? null;
  state.lastClass = known;
  state.state = outcome.state;
  // Held, or with another worker: `untilMs` is when to look again, not an attempt.
  state.nextAttemptAt =
    outcome.kind === 'wait' && outcome.state === 'retrying' ? new Date(outcome.untilMs).toISOString() : null;
  if (known !== null) lines.push(`| ${outcome.attempts} | ${outcome.status ?? '–'} | ${known} |`);
  const next = state.nextAttemptAt === null ? '' : `, next at ${state.nextAttemptAt}`;
  setCurrentDetails(
    `**${state.state}** after ${state.attempts} attempt(s)${next}\n\n| attempt | status | class |\n|---|---|---|\n${lines.slice(-20).join('\n')}`,
  );
}

function markRetrying(outcome: AttemptOutcome): void {
  // Set at the start only where the server knows the attribute: then, and only then, it may be changed.
  if (workflowInfo().typedSearchAttributes.get(stateAttribute) === undefined) return;
  upsertSearchAttributes([
    { key: stateAttribute, value: outcome.state },
    { key: attemptAttribute, value: outcome.attempts },
  ]);
}

function summaryOf(outcome: AttemptOutcome & { kind: 'wait' }, ms: number): string {
  if (outcome.state === 'held') return 'held for its endpoint';
  if (outcome.state === 'busy') return 'another worker is sending';
  return `attempt ${outcome.nextAttempt} in ${describe(ms)} · last ${outcome.status ?? outcome.class ?? 'unknown'}`;
}

function describe(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  if (ms < 60_000) return `${Math.round(ms / 1_000)}s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)}m`;
  return `${(ms / 3_600_000).toFixed(1)}h`;
}
