/**
 * What replay/<id> asks for: begin, page, cancel. Called by src/workflows/replay.ts; the statements are in
 * src/db/replays.ts, the rules in docs/adr/0004-replay.md.
 */
import { Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import { tenantOf } from '../db/operators.ts';
import {
  cancelReplay,
  endpointOwner,
  getReplay,
  insertReplay,
  type NewReplay,
  type ReplayFilter,
  type ReplayRow,
  replayCount,
  replayOfKey,
  replayPage,
  skipReplayCount,
} from '../db/replays.ts';
import { parseTimestamp } from '../domain/event-input.ts';
import { idTimeMs } from '../domain/ids.ts';
import { replayEtaMs } from '../domain/replay-eta.ts';
import { newId } from '../ids.ts';
import { REFUSED, type ReplayInput, type ReplayProgress } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import { sleep } from './sleep.ts';

/** One activity pages for so long: few history events, and counts in the Web UI that are not old. */
const ROUND_MS = 5_000;
/** A replay without room looks again after this; within a round it looks every second. */
const NO_ROOM_MS = 20_000;
/** The scanner starts another workflow when no page was made or asked for in so long. */
const ALIVE_MS = 60_000;
const DEFAULT_RATE = 50;

const ANY: ReplayFilter = {
  delivery: null,
  endpoint: null,
  event: null,
  type: null,
  states: null,
  status: null,
  class: null,
  since: null,
  until: null,
};

export type ReplayRequest = Exclude<ReplayInput, { replayId: string }>;

/** Makes the replay's row; the same key gives the same one. Answers its id, or fails for good when it can't be done. */
export async function beginReplay(
  deps: Pick<ActivityDeps, 'db'>,
  input: ReplayRequest & { key: string },
): Promise<string> {
  const what = 'deliveryId' in input ? await ofDelivery(deps, input) : await ofEndpoint(deps, input);
  const id = await insertReplay(deps.db, {
    id: newId('rpl'),
    action: 'resend',
    key: input.key,
    aliveMs: ALIVE_MS,
    ...what,
  });
  return (
    id ?? (await replayOfKey(deps.db, input.key)) ?? refuse(REFUSED.tenantNotFound, 'the tenant is gone')
  );
}

/**
 * For other activities: makes a replay of an endpoint's range and starts replay/<id>. Safe to repeat: without a key
 * of the caller's, the activity that calls it asks once however often it is tried.
 */
export async function startReplay(
  deps: Pick<ActivityDeps, 'db' | 'starter'>,
  input: ReplayRequest & { key?: string },
): Promise<string> {
  const { workflowExecution, activityId } = Context.current().info;
  const key = input.key ?? `${workflowExecution?.workflowId}/${workflowExecution?.runId}/${activityId}`;
  const id = await beginReplay(deps, { ...input, key });
  const row = await getReplay(deps.db, null, id);
  await deps.starter.startReplay(id, row!.tenant); // when it fails, the scanner does it
  return id;
}

type What = Pick<NewReplay, 'tenant' | 'source' | 'filter' | 'missed' | 'rate'>;

async function ofDelivery(
  deps: Pick<ActivityDeps, 'db'>,
  { deliveryId }: { deliveryId: string },
): Promise<What> {
  const createdMs = idTimeMs(deliveryId);
  const tenant = createdMs === null ? null : await tenantOf(deps.db, deliveryId, new Date(createdMs));
  if (tenant === null) return refuse(REFUSED.deliveryNotFound, `there is no delivery ${deliveryId}`);
  const filter = { ...ANY, delivery: deliveryId };
  return { tenant, source: 'delivery', filter, missed: false, rate: DEFAULT_RATE };
}

async function ofEndpoint(
  deps: Pick<ActivityDeps, 'db'>,
  input: Extract<ReplayRequest, { endpointId: string }>,
): Promise<What> {
  const owner = await endpointOwner(deps.db, input.endpointId);
  if (owner === null || owner.state === 'deleted')
    return refuse(REFUSED.endpointNotFound, `there is no endpoint ${input.endpointId}`);
  if (owner.state === 'disabled')
    return refuse(REFUSED.endpointDisabled, `endpoint ${input.endpointId} is disabled; enable it first`);
  const since = timeOf('since', input.since);
  const until = input.until === undefined ? null : timeOf('until', input.until);
  const rate = input.rate ?? DEFAULT_RATE;
  if (!Number.isInteger(rate) || rate < 1 || rate > 1_000)
    return refuse(REFUSED.invalidInput, 'rate must be a whole number from 1 to 1000');
  const filter = { ...ANY, endpoint: input.endpointId, states: ['dead', 'cancelled'], since, until };
  return { tenant: owner.tenant, source: 'deliveries', filter, missed: input.missed ?? false, rate };
}

function timeOf(name: string, value: unknown): Date {
  const ms = typeof value === 'string' ? parseTimestamp(value) : null;
  if (ms === null)
    return refuse(REFUSED.invalidInput, `${name} must be an RFC 3339 time such as 2026-01-31T12:00:00Z`);
  return new Date(ms);
}

function refuse(type: string, message: string): never {
  throw ApplicationFailure.nonRetryable(message, type);
}

/** Pages for a while. `waitMs`: until the next round. */
export async function pageReplay(
  deps: ActivityDeps,
  replayId: string,
): Promise<ReplayProgress & { waitMs: number }> {
  const context = Context.current();
  const stop = AbortSignal.any([deps.stopping, context.cancellationSignal]);
  const beat = setInterval(() => context.heartbeat(), 5_000);
  const end = performance.now() + ROUND_MS;
  try {
    await replayCount(deps.db, replayId).catch(async (error: unknown) => {
      deps.log.warn({ err: error, replay: replayId }, 'a replay could not be counted; it goes on without');
      await skipReplayCount(deps.db, replayId);
    });
    for (;;) {
      const page = await replayPage(deps.db, replayId, ALIVE_MS);
      for (const delivery of page.slept ?? []) void deps.starter.wakeIfRunning(delivery);
      if (page.state !== 'running' || stop.aborted || performance.now() + page.wait_ms > end) {
        const row = await getReplay(deps.db, null, replayId);
        if (row === null) return refuse(REFUSED.replayNotFound, `there is no replay ${replayId}`);
        return { ...progressOf(row), waitMs: row.waiting ? NO_ROOM_MS : page.wait_ms };
      }
      await sleep(page.wait_ms, stop);
    }
  } finally {
    clearInterval(beat);
  }
}

export async function endReplay(deps: ActivityDeps, replayId: string): Promise<ReplayProgress> {
  const row = await cancelReplay(deps.db, null, replayId);
  return row === null ? refuse(REFUSED.replayNotFound, `there is no replay ${replayId}`) : progressOf(row);
}

function progressOf(row: ReplayRow): ReplayProgress {
  const facts = {
    running: row.state === 'running',
    total: row.total,
    done: row.moved + row.missed_made + row.skipped,
    rate: row.rate,
    createdAtMs: row.created_at.getTime(),
  };
  const eta = replayEtaMs(facts, Date.now());
  return {
    replayId: row.id,
    state: row.state,
    total: row.total,
    moved: row.moved,
    missed: row.missed_made,
    skipped: row.skipped,
    waiting: row.waiting,
    eta: eta === null ? null : new Date(eta).toISOString(),
    reason: row.reason,
  };
}
