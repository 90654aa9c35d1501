/**
 * One group of deliveries: an attempt of every member. Called by dispatch.ts; calls sender.ts.
 *
 * Members that failed wait in their own workflow, started here a little later (sleepers.ts), or as rows. Whatever is left at the end (no slot,
 * process stopping, claimed by a lost worker) becomes a row alone when the group is dissolved.
 */
import { dispatchEndpoints } from '../db/dispatches.ts';
import { type LoadedDelivery, loadDispatch } from '../db/load.ts';
import { finish, park } from '../db/verbs.ts';
import type { DispatchResult, Lane } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import type { MemberOutcome } from './outcome.ts';
import { runPump } from './pump.ts';

const LEAVE_MS = 100;
/** A member waits so long for a slot or a token; then its endpoint goes to mode pump. Replays have time. */
const PATIENCE_MS = { first: 1_000, retry: 1_000, bulk: 5_000, held: 1_000 } as const;
/** Endpoints of a group are pumped for so long, so that none of them keeps the group. */
const PUMP_RUN_MS = 20_000;
const PUMP_LINGER_MS = 500;

/** Adds what becomes of its members to `result`. Resolves when the group can be dissolved; what fails may be repeated. */
export async function workGroup(
  deps: ActivityDeps,
  dispatch: string,
  lane: Lane,
  stop: AbortSignal,
  result: DispatchResult,
): Promise<void> {
  const pumps = lane === 'held' ? await dispatchEndpoints(deps.db, dispatch) : [];
  const rows = await loadDispatch(deps.db, dispatch);
  const ready = rows.filter((row) => row.state !== 'sending');
  let ending: string[] = [];
  let parking: string[] = [];
  // Nobody waits for the group's slowest member: who can't be sent leaves while it goes on.
  let leaving: NodeJS.Timeout | undefined;
  const letGo = async (): Promise<void> => {
    clearTimeout(leaving);
    leaving = undefined;
    const [ended, parked] = [ending, parking];
    ending = [];
    parking = [];
    if (ended.length > 0) await finish(deps.db, ended);
    if (parked.length > 0) await park(deps.db, parked, dispatch);
  };
  const soon = (): void => {
    leaving ??= setTimeout(() => void letGo().catch(() => {}), LEAVE_MS); // what fails is dissolved with the rest
  };
  const starts: Promise<unknown>[] = [];
  const progress = deps.progress.begin(dispatch, ready);
  const ownWorkflow = (): boolean =>
    deps.grouping === 'never' ||
    (deps.living.free() && deps.starter.budget.take('retry', performance.now()) && deps.living.reserve());

  const onOutcome = (row: LoadedDelivery, outcome: MemberOutcome): void => {
    if (outcome.kind !== 'left') progress.done(row.tenant);
    switch (outcome.kind) {
      case 'recorded':
        deps.observe(row, outcome);
        if (outcome.state === 'delivered') result.delivered++;
        else result.failed++;
        if (outcome.state === 'retrying' && outcome.workflow) {
          starts.push(
            deps.sleepers.start(row, {
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
        ) {
          ending.push(row.delivery);
          soon();
        }
        break; // a held one left the group with the claim that refused it
      case 'denied':
        result.left++;
        parking.push(row.delivery);
        soon();
        break;
      case 'left':
        result.left++;
        break;
    }
  };
  try {
    await deps.sender.send(ready, { patienceMs: PATIENCE_MS[lane], ownWorkflow, stop }, onOutcome);
    const runs = pumps.map((endpoint) =>
      runPump(deps, endpoint, { runMs: PUMP_RUN_MS, lingerMs: PUMP_LINGER_MS, stop }).catch(
        (error: unknown) => deps.log.warn({ err: error, endpoint }, 'a pump broke off; another follows'),
      ),
    );
    await Promise.all(runs);
    await letGo();
    await Promise.all(starts);
    progress.end();
  } finally {
    clearTimeout(leaving);
    progress.abandon();
  }
}
