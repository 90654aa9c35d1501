/**
 * attemptDelivery: one attempt of one delivery, asked for by delivery/<id>. Called by src/workflows/delivery.ts;
 * calls sender.ts (claim → POST → record). Answers with ids, numbers and verdicts only: they enter history.
 */
import { Context } from '@temporalio/activity';
import { disown } from '../db/dispatches.ts';
import { type LoadedDelivery, loadDeliveries, loadFinal } from '../db/load.ts';
import { type cancel, type Operated, type resend, tenantOf } from '../db/operators.ts';
import { finish, park } from '../db/verbs.ts';
import { idTimeMs } from '../domain/ids.ts';
import type { AttemptOutcome, OperatorResult } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import type { MemberOutcome } from './outcome.ts';
import { sleep } from './sleep.ts';
import { sendTest } from './test-send.ts';

/** A lone delivery blocks nobody while it waits for a slot; after this it leaves the queue to the held lane. */
const PATIENCE_MS = 5_000;
const HELD_MS = 15 * 60_000;
/** Waits shorter than this are slept here: a Temporal timer takes about a second to fire and costs a workflow task. */
const SHORT_WAIT_MS = 1_500;
const MAX_TRIES = 30;
/** The reaper's grace (src/relay/scanner.ts) and a little: when a lost claim has been reaped. */
const AFTER_REAP_MS = 16_000;

export async function attemptDelivery(
  deps: ActivityDeps,
  input: { deliveryId: string },
): Promise<AttemptOutcome> {
  const context = Context.current();
  deps.starter.began(context.info.workflowExecution?.workflowId ?? '');
  const beat = setInterval(() => context.heartbeat(), 5_000);
  const stop = AbortSignal.any([deps.stopping, context.cancellationSignal]);
  try {
    for (let tries = 0; ; tries++) {
      const [row] = await loadDeliveries(deps.db, [input.deliveryId]);
      if (row === undefined) return await ended(deps, input.deliveryId);
      if (row.state === 'sending') return wait(row, 'busy', deps.clock.now() + AFTER_REAP_MS);
      const early = row.due_at.getTime() - deps.clock.now();
      if (early > SHORT_WAIT_MS) return wait(row, 'retrying', row.due_at.getTime());
      if (early > 0) await sleep(early, stop);
      let outcome: MemberOutcome | undefined;
      if (row.kind === 'test') outcome = await sendTest(deps, row);
      else
        await deps.sender.send(
          [row],
          { patienceMs: PATIENCE_MS, ownWorkflow: () => true, stop },
          (_row, answer) => {
            outcome = answer;
          },
        );
      const answer = (await translate(deps, row, outcome!)) ?? wait(row, 'busy', deps.clock.now() + 100);
      if (answer.kind === 'ended' || answer.state === 'held' || tries >= MAX_TRIES) return answer;
      const ms = answer.untilMs - deps.clock.now();
      if (ms > SHORT_WAIT_MS || stop.aborted) return answer;
      await sleep(Math.max(0, ms), stop);
    }
  } finally {
    clearInterval(beat);
  }
}

/** null: the row changed under us; read it again. */
async function translate(
  deps: ActivityDeps,
  row: LoadedDelivery,
  outcome: MemberOutcome,
): Promise<AttemptOutcome | null> {
  switch (outcome.kind) {
    case 'recorded': {
      deps.observe(row, outcome);
      const seen = { status: outcome.status, class: outcome.class, made: true };
      if (outcome.state === 'stale') return null;
      if (outcome.state === 'retrying') {
        return {
          kind: 'wait',
          state: 'retrying',
          untilMs: outcome.dueAtMs!,
          attempts: outcome.n,
          nextAttempt: outcome.n + 1,
          generation: row.generation,
          ...seen,
        };
      }
      return {
        kind: 'ended',
        state: endOf(row.kind, outcome.state),
        attempts: outcome.n,
        ...(outcome.reason === null ? {} : { reason: outcome.reason }),
        ...seen,
      };
    }
    case 'refused':
      switch (outcome.verdict) {
        case 'gone':
          return ended(deps, row.delivery);
        case 'stale':
          return null;
        case 'busy':
          return wait(row, 'busy', Math.max(outcome.untilMs ?? 0, deps.clock.now()) + AFTER_REAP_MS);
        case 'early':
          return wait(row, 'retrying', outcome.untilMs ?? deps.clock.now() + 1_000);
        case 'held':
          return wait(row, 'held', deps.clock.now() + HELD_MS);
        default:
          await finish(deps.db, [row.delivery]);
          return null;
      }
    case 'denied':
      // A test send is over soon; it waits for its own slot.
      if (row.kind === 'test') return wait(row, 'busy', deps.clock.now() + 500);
      await park(deps.db, [row.delivery], null);
      return wait(row, 'held', deps.clock.now() + HELD_MS);
    case 'left':
      return wait(row, 'busy', deps.clock.now());
  }
}

function wait(row: LoadedDelivery, state: 'retrying' | 'busy' | 'held', untilMs: number): AttemptOutcome {
  return {
    kind: 'wait',
    state,
    untilMs: Math.round(untilMs),
    attempts: row.n,
    nextAttempt: row.n + 1,
    generation: row.generation,
  };
}

/** A failed test is no dead letter, in Temporal either. */
function endOf(kind: string, state: 'delivered' | 'dead' | 'cancelled') {
  return kind === 'test' && state === 'dead' ? 'failed' : state;
}

async function ended(deps: ActivityDeps, delivery: string): Promise<AttemptOutcome> {
  const createdMs = idTimeMs(delivery);
  const final = createdMs === null ? null : await loadFinal(deps.db, delivery, new Date(createdMs));
  if (final === null) return { kind: 'ended', state: 'unknown', attempts: 0 };
  return {
    kind: 'ended',
    state: endOf(final.kind, final.state as 'delivered' | 'dead' | 'cancelled'),
    attempts: final.n,
    ...(final.reason === null ? {} : { reason: final.reason }),
    status: final.last_status,
    ...(final.last_class === null ? {} : { class: final.last_class }),
  };
}

/** resend and cancel from Temporal's side: the same guarded functions the API calls. */
export async function operate(
  deps: ActivityDeps,
  delivery: string,
  act: typeof resend | typeof cancel,
): Promise<OperatorResult> {
  const createdMs = idTimeMs(delivery);
  const tenant = createdMs === null ? null : await tenantOf(deps.db, delivery, new Date(createdMs));
  const answer: Operated | null =
    tenant === null ? null : await act(deps.db, tenant, delivery).catch(refused);
  return answer === null ? { state: 'not_found', attempts: 0 } : { state: answer.state, attempts: answer.n };
}

/** SQLSTATEs of posthaste.resend, as the API's codes. */
const REFUSALS: Readonly<Record<string, string>> = {
  PHEND: 'endpoint_disabled',
  PHEXP: 'event_expired',
  PHTST: 'test_delivery',
};

function refused(error: unknown): Operated {
  const state = REFUSALS[(error as { code?: string }).code ?? ''];
  if (state !== undefined) return { delivery: '', state, generation: 0, n: 0 };
  throw error;
}

export async function disownDelivery(deps: ActivityDeps, delivery: string): Promise<void> {
  await disown(deps.db, delivery);
}
