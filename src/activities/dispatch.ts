/**
 * attemptDispatch: works through the group it was started for, and through those that join it while it runs
 * (carriers.ts). Called by src/workflows/dispatch.ts; calls group.ts.
 *
 * Every group has its own lease on life (dispatches.alive_until), renewed here: when this process dies, the scanner
 * makes new groups of what is left, whoever carried them.
 */
import { Context } from '@temporalio/activity';
import { dissolve, renewDispatches, takeOffered } from '../db/dispatches.ts';
import { type DispatchResult, LANE_QUEUES, type Lane } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import { workGroup } from './group.ts';

export const DISPATCH_ALIVE_MS = 30_000;
const RENEW_MS = 8_000;
/** Ended groups are dissolved together. Nobody waits for it, but for members that are left. */
const DISSOLVE_MS = 250;
const REAP_GRACE_MS = 15_000;
/** How often groups that relays of other processes offer are asked for. */
const TAKE_MS = 30;
/** Few, so that those who run dispatches share them. */
const TAKE_MOST = 2;
const RETRY_MS = 1_000;
const RETRY_MOST_MS = 10_000;

export async function attemptDispatch(
  deps: ActivityDeps,
  input: { dispatchId: string },
): Promise<DispatchResult> {
  const context = Context.current();
  deps.starter.began(context.info.workflowExecution?.workflowId ?? '');
  const lane = laneOf(context.info.taskQueue);
  const result: DispatchResult = { delivered: 0, failed: 0, left: 0 };
  const stop = AbortSignal.any([deps.stopping, context.cancellationSignal]);
  const groups = new Map<string, AbortController>();
  let ended: string[] = [];

  const renew = async (): Promise<void> => {
    const asked = [...groups.keys()];
    if (asked.length === 0) return;
    const alive = new Set(await renewDispatches(deps.db, asked, DISPATCH_ALIVE_MS));
    // Dissolved by the scanner (this process was cut off for too long): someone else goes on.
    for (const dispatch of asked) if (!alive.has(dispatch)) groups.get(dispatch)?.abort();
  };
  const dissolveEnded = async (): Promise<void> => {
    const ids = ended;
    ended = [];
    if (ids.length > 0) await dissolve(deps.db, [], ids, REAP_GRACE_MS); // what fails runs out by its lease
  };
  const work = async (dispatch: string): Promise<void> => {
    const began = performance.now();
    const group = new AbortController();
    groups.set(dispatch, group);
    if (stop.aborted) group.abort();
    const counts: DispatchResult = { delivered: 0, failed: 0, left: 0 };
    try {
      await workGroup(deps, dispatch, lane, group.signal, counts);
    } finally {
      groups.delete(dispatch);
      for (const key of ['delivered', 'failed', 'left'] as const) result[key] += counts[key];
    }
    ended.push(dispatch);
    if (counts.left > 0) await dissolveEnded();
    deps.log.debug({ dispatch, ms: Math.round(performance.now() - began), ...counts }, 'group done');
  };
  /** What breaks off is tried again here: Temporal would try the activity again, but groups have joined it. */
  const carry = async (dispatch: string): Promise<void> => {
    for (let wait = RETRY_MS; ; wait = Math.min(RETRY_MOST_MS, wait * 2)) {
      try {
        return await work(dispatch);
      } catch (error) {
        deps.log.warn({ err: error, dispatch }, 'a group broke off; its rest is tried again');
        if (stop.aborted) return;
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  };

  const carrier = deps.carriers.begin(lane, carry);
  const halt = (): void => {
    carrier.close();
    for (const group of groups.values()) group.abort();
  };
  if (stop.aborted) halt();
  else stop.addEventListener('abort', halt, { once: true });
  const beat = setInterval(() => context.heartbeat(), 5_000);
  const renewing = setInterval(() => void renew().catch(() => {}), RENEW_MS);
  let asking = false;
  const take = async (): Promise<void> => {
    if (asking || !carrier.isOpen() || deps.gate.free() === 0) return; // others may have room
    asking = true;
    try {
      for (const dispatch of await takeOffered(deps.db, lane, TAKE_MOST, DISPATCH_ALIVE_MS)) {
        if (carrier.isOpen()) carrier.take(dispatch);
        else await deps.starter.startDispatch(dispatch, lane, 0); // this activity may be over
      }
    } finally {
      asking = false;
    }
  };
  const taking =
    deps.takesOffers && lane === 'first'
      ? setInterval(() => void take().catch(() => {}), TAKE_MS)
      : undefined;
  const dissolving = setInterval(() => void dissolveEnded().catch(() => {}), DISSOLVE_MS);
  try {
    await carry(input.dispatchId);
    carrier.ownEnded();
    await carrier.over;
    clearInterval(dissolving);
    await dissolveEnded();
    return result;
  } finally {
    stop.removeEventListener('abort', halt);
    clearInterval(beat);
    clearInterval(renewing);
    clearInterval(taking);
    clearInterval(dissolving);
  }
}

function laneOf(taskQueue: string): Lane {
  for (const [lane, queue] of Object.entries(LANE_QUEUES)) if (queue === taskQueue) return lane as Lane;
  return 'first';
}
