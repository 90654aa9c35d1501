/**
 * pumpEndpoint: the one sender of an endpoint in mode pump. Asked for by src/workflows/endpoint.ts, and by dispatch.ts
 * for groups of endpoints beyond the budget of workflows. What may be sent now is decided by claim_pump
 * (migrations/functions/pump.sql) at each call: rate, slots, probe, pause, whose turn. Here is only the loop.
 *
 * A crash: the lease runs out after 15 s and the scanner gives the endpoint another pump; claims that were granted are
 * reaped like any other's.
 */
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import { disownEndpointRow, getEndpointHealth } from '../db/health.ts';
import { loadDeliveries } from '../db/load.ts';
import { claimPump, expireNow, finish, giveBack, leavePump, newPump, type PumpAnswer } from '../db/verbs.ts';
import { type EndpointReport, reportOf } from '../domain/endpoint-report.ts';
import type { ActivityDeps } from './deps.ts';

const LEASE_MS = 15_000;
const MAX_CLAIM = 250;
/** A run ends after this, so that histories and workers stay fresh. */
const RUN_MS = 60_000;
/** With nothing held, how long a run waits for more. */
const LINGER_MS = 10_000;
/** Waits longer than this are a workflow's, not ours. */
const SHORT_WAIT_MS = 5_000;
/** With nothing held that may be sent, how long until the next look. */
const POLL_MS = 250;
/** Under a rate, tokens are collected for this long: a claim for each would cost more than the request. */
const TOKEN_PAUSE_MS = 250;
/** Hundreds of pumps look less often, so that their claims don't crowd out those of first attempts. */
const CROWD = 50;
/** A bucket holds a second's tokens at the least; waiting longer would waste some. */
const MOST_PAUSE_MS = 800;
/** What a pump waits for may change (an edit, a better rate): it looks again after this. */
const CHANGE_MS = 1_000;
/** Every slot is taken: an answer wakes the pump, and this is only for what was sent before it came. */
const FULL_MS = 1_000;
const TELL_MS = 1_000;
/** Hundreds of pumps begin at once when many endpoints fail: they must not take the process's connections from first attempts. */
const turns = pLimit(3);
/** Freed slots are collected for this long before they are claimed. */
const SLOT_PAUSE_MS = 5;

export interface PumpRun {
  status: PumpAnswer['status'];
  /** When to look again; null: when something is held again. */
  until: Date | null;
}

export async function pumpEndpoint(
  deps: ActivityDeps,
  input: { endpointId: string },
): Promise<EndpointReport> {
  const context = Context.current();
  deps.starter.began(context.info.workflowExecution?.workflowId ?? '');
  const beat = setInterval(() => context.heartbeat(), 5_000);
  try {
    const stop = AbortSignal.any([deps.stopping, context.cancellationSignal]);
    const run = await runPump(deps, input.endpointId, { runMs: RUN_MS, lingerMs: LINGER_MS, stop });
    const row = await getEndpointHealth(deps.db, input.endpointId);
    const report = reportOf(row, run, deps.clock.now());
    // Before the workflow returns: an endpoint that needs one again meanwhile must not count on this one.
    if (report.mode === 'shared' || report.state === 'disabled' || report.state === 'deleted') {
      await disownEndpointRow(deps.db, input.endpointId);
    }
    return report;
  } finally {
    clearInterval(beat);
  }
}

let pumps = 0; // that run in this process

export async function runPump(...args: Parameters<typeof runAlone>): Promise<PumpRun> {
  pumps++;
  try {
    return await runAlone(...args);
  } finally {
    pumps--;
  }
}

async function runAlone(
  deps: ActivityDeps,
  endpoint: string,
  options: { runMs: number; lingerMs: number; stop: AbortSignal },
): Promise<PumpRun> {
  const pump = await newPump(deps.db);
  const began = performance.now();
  const under = new Set<Promise<void>>();
  let emptySince: number | null = null;
  let wake: () => void = () => {};
  let answered = 0;
  let run: PumpRun = { status: 'idle', until: null };

  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      function done(): void {
        clearTimeout(timer);
        options.stop.removeEventListener('abort', done);
        resolve();
      }
      wake = done;
      if (options.stop.aborted) done();
      else options.stop.addEventListener('abort', done);
    });

  for (;;) {
    if (options.stop.aborted || performance.now() - began > options.runMs) {
      run = { status: run.status, until: new Date(deps.clock.now()) };
      break;
    }
    const room = Math.min(MAX_CLAIM, deps.gate.free());
    if (room < 1) {
      await pause(POLL_MS);
      continue;
    }
    const before = answered;
    let claimedAt = 0;
    const answer = await turns(() => {
      claimedAt = performance.now();
      return claimPump(deps.db, endpoint, pump, room, LEASE_MS);
    });
    run = { status: answer.status, until: answer.until };
    const claims = answer.claims ?? [];
    if (claims.length > 0) {
      emptySince = null;
      const sending = sendClaims(deps, endpoint, answer, claimedAt, () => {
        answered++;
        wake();
      });
      for (const one of await sending) {
        under.add(one);
        void one.catch(() => {}).finally(() => under.delete(one));
      }
    } else if (answer.status === 'idle') {
      emptySince ??= performance.now();
      if (under.size === 0 && performance.now() - emptySince >= options.lingerMs) break;
    } else if (answer.status !== 'pumping' && answer.status !== 'waiting') break;

    const waitMs = answer.until === null ? 0 : answer.until.getTime() - deps.clock.now();
    if (waitMs > SHORT_WAIT_MS && under.size === 0 && claims.length === 0) break;
    if (answer.until === null && claims.length >= room) continue;
    const full = answer.until === null && answer.status === 'pumping' && claims.length === 0;
    if (full && answered > before) continue; // a slot was freed while this claim was asked for
    await pause(
      full ? FULL_MS : Math.min(Math.max(leastPause(answer.until === null), waitMs), CHANGE_MS * crowded()),
    );
    if (under.size > 0) await new Promise((resolve) => setTimeout(resolve, SLOT_PAUSE_MS));
  }
  await Promise.allSettled(under);
  const promised = run.status === 'waiting' || run.status === 'pumping' ? run.until : null;
  const next = promised === null ? null : new Date(promised.getTime() + SHORT_WAIT_MS);
  await turns(() => leavePump(deps.db, endpoint, pump, next));
  return run;
}

const crowded = (): number => Math.min(4, Math.max(1, pumps / CROWD));

function leastPause(idle: boolean): number {
  return Math.min((idle ? POLL_MS : TOKEN_PAUSE_MS) * crowded(), MOST_PAUSE_MS);
}

/** Starts the requests of granted claims; each promise resolves when its attempt is recorded. */
async function sendClaims(
  deps: ActivityDeps,
  endpoint: string,
  answer: PumpAnswer,
  claimedAt: number,
  onEnd: () => void,
): Promise<Promise<void>[]> {
  const claims = answer.claims!;
  let rows: Awaited<ReturnType<typeof loadDeliveries>>;
  try {
    rows = await loadDeliveries(
      deps.db,
      claims.map(({ delivery }) => delivery),
    );
  } catch (error) {
    await giveBack(
      deps.db,
      claims.map(({ delivery, token }) => ({ delivery, endpoint, token })),
    ).catch(() => {}); // then the reaper has them
    throw error;
  }
  const byDelivery = new Map(rows.map((row) => [row.delivery, row]));
  return claims.map(async (claim) => {
    const row = byDelivery.get(claim.delivery);
    if (row === undefined) return expire(deps, endpoint, claim);
    const outcome = await deps.sender.sendClaimed(
      row,
      { ...claim, epoch: answer.epoch, revision: answer.revision },
      claimedAt,
      {
        ownWorkflow: () => row.workflow,
      },
    );
    if (outcome.kind === 'recorded') {
      deps.observe(row, outcome);
      if (row.workflow) tell(deps, row.delivery);
    }
    onEnd();
  });
}

/** Its workflow sleeps until it is told, or a quarter of an hour has passed. Without a token for that, a little later. */
function tell(deps: ActivityDeps, delivery: string): void {
  if (deps.stopping.aborted) return;
  if (deps.starter.budget.take('single', performance.now())) void deps.starter.wakeIfRunning(delivery);
  else setTimeout(tell, TELL_MS, deps, delivery).unref();
}

/** A delivery whose event is gone can't be sent: it ends instead of being claimed for ever. */
async function expire(
  deps: ActivityDeps,
  endpoint: string,
  { delivery, token }: { delivery: string; token: number },
): Promise<void> {
  deps.log.error({ delivery, endpoint }, 'the event of a delivery is gone; the delivery ends');
  await expireNow(deps.db, delivery, token);
  await giveBack(deps.db, [{ delivery, endpoint, token }]);
  await finish(deps.db, [delivery]);
}
