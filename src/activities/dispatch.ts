/**
 * attemptDispatch: one attempt of every member of a group. Called by src/workflows/dispatch.ts; calls sender.ts.
 *
 * The activity renews the group's lease (dispatches.alive_until) while it lives. Members that failed wait in their
 * own workflow, started here at once, or as rows. Whatever is left at the end (no slot, process stopping, claimed by
 * a lost worker) becomes a row alone when the group is dissolved.
 */
import { Context } from '@temporalio/activity';
import { dispatchEndpoints, dissolve, renewDispatch } from '../db/dispatches.ts';
import { type LoadedDelivery, loadDispatch } from '../db/load.ts';
import { finish, park } from '../db/verbs.ts';
import { type DispatchResult, LANE_QUEUES } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import type { MemberOutcome } from './outcome.ts';
import type { GroupProgress } from './progress.ts';
import { runPump } from './pump.ts';

export const DISPATCH_ALIVE_MS = 30_000;
const RENEW_MS = 8_000;
const LEAVE_MS = 100;
/** A group that took so long waited for a member. */
const LINGERED_MS = 5_000;
const REAP_GRACE_MS = 15_000;
/** A member waits so long for a slot or a token; then its endpoint goes to mode pump. Replays have time. */
const PATIENCE_MS = { first: 1_000, retry: 1_000, bulk: 5_000, held: 1_000 } as const;
/** Endpoints of a group are pumped for so long, so that none of them keeps the group. */
const PUMP_RUN_MS = 20_000;
const PUMP_LINGER_MS = 500;

export async function attemptDispatch(
  deps: ActivityDeps,
  input: { dispatchId: string },
): Promise<DispatchResult> {
  const { dispatchId } = input;
  const began = performance.now();
  const context = Context.current();
  deps.starter.began(context.info.workflowExecution?.workflowId ?? '');
  const pumps =
    context.info.taskQueue === LANE_QUEUES.held ? await dispatchEndpoints(deps.db, dispatchId) : [];
  const rows = await loadDispatch(deps.db, dispatchId);
  const result: DispatchResult = { delivered: 0, failed: 0, left: 0 };
  const over = new AbortController();
  const stop = AbortSignal.any([deps.stopping, context.cancellationSignal, over.signal]);
  const beat = setInterval(() => context.heartbeat(), 5_000);
  const renew = setInterval(() => {
    // Dissolved by the scanner (this process was cut off for too long): someone else goes on.
    renewDispatch(deps.db, dispatchId, DISPATCH_ALIVE_MS).then(
      (alive) => alive || over.abort(),
      () => {},
    );
  }, RENEW_MS);
  let leaving: NodeJS.Timeout | undefined;
  let progress: GroupProgress | undefined;
  try {
    const ready = rows.filter((row) => row.state !== 'sending');
    const lane = ready[0]?.lane ?? 'first';
    let ending: string[] = [];
    let parking: string[] = [];
    // Nobody waits for the group's slowest member: who can't be sent leaves while it goes on.
    const letGo = async (): Promise<void> => {
      const [ended, parked] = [ending, parking];
      ending = [];
      parking = [];
      if (ended.length > 0) await finish(deps.db, ended);
      if (parked.length > 0) await park(deps.db, parked, dispatchId);
    };
    const starts: Promise<unknown>[] = [];
    progress = deps.progress.begin(dispatchId, ready);
    const ownWorkflow = (): boolean =>
      deps.grouping === 'never' ||
      (deps.starter.budget.take('retry', performance.now()) && deps.living.reserve());

    const onOutcome = (row: LoadedDelivery, outcome: MemberOutcome): void => {
      if (outcome.kind !== 'left') progress?.done(row.tenant);
      switch (outcome.kind) {
        case 'recorded':
          deps.observe(row, outcome);
          if (outcome.state === 'delivered') result.delivered++;
          else result.failed++;
          if (outcome.state === 'retrying' && outcome.workflow) {
            starts.push(
              deps.starter.startDelivery(row, {
                generation: row.generation,
                dueAt: outcome.dueAtMs!,
                last: { attempts: outcome.n, status: outcome.status, class: outcome.class },
              }),
            );
          }
          break;
        case 'refused':
          result.left++;
          if (
            outcome.verdict === 'expired' ||
            outcome.verdict === 'cancelled' ||
            outcome.verdict === 'disabled'
          )
            ending.push(row.delivery);
          break; // a held one left the group with the claim that refused it
        case 'denied':
          result.left++;
          parking.push(row.delivery);
          break;
        case 'left':
          result.left++;
          break;
      }
    };
    leaving = setInterval(() => void letGo().catch(() => {}), LEAVE_MS); // what fails is dissolved with the rest
    await deps.sender.send(ready, { patienceMs: PATIENCE_MS[lane], ownWorkflow, stop }, onOutcome);
    const runs = pumps.map((endpoint) =>
      runPump(deps, endpoint, { runMs: PUMP_RUN_MS, lingerMs: PUMP_LINGER_MS, stop }).catch(
        (error: unknown) => deps.log.warn({ err: error, endpoint }, 'a pump broke off; another follows'),
      ),
    );
    await Promise.all(runs);
    clearInterval(leaving);
    await letGo();
    await Promise.all(starts);
    await dissolve(deps.db, [], [dispatchId], REAP_GRACE_MS);
    progress.end();
    clearInterval(renew); // it would find the group dissolved
    if (performance.now() - began > LINGERED_MS) await deps.endings.turn(stop);
    deps.log.debug(
      { dispatch: dispatchId, ms: Math.round(performance.now() - began), ...result },
      'group done',
    );
    return result;
  } finally {
    clearInterval(beat);
    clearInterval(renew);
    clearInterval(leaving);
    progress?.abandon();
  }
}
