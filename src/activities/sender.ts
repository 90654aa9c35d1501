/**
 * claim → POST → record, for one delivery or hundreds. Called by send.ts (delivery/<id>) and dispatch.ts
 * (dispatch/<id>), which load the rows and act on the outcomes.
 *
 * Every member has its own try and ends as an outcome; nothing here waits for the slowest. Members without a slot
 * wait for one of their endpoint's to be freed, and ask again in the same breath. Throws only when PostgreSQL can't
 * be reached before something was sent (what was claimed is given back): what has been sent is always recorded first.
 *
 * A crash: before the claim, nothing happened; between claim and record, the reaper writes attempt n as worker_lost
 * and the delivery is due again (the receiver may have it: at least once); after the record, nothing is lost.
 */

import type { DbClock } from '../db/clock.ts';
import { type LoadedDelivery, loadContents } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import { type ClaimAnswer, giveBack } from '../db/verbs.ts';
import type { Egress } from '../egress/post.ts';
import type { Log } from '../log.ts';
import type { MasterKeys } from '../secrets.ts';
import { attempt, type Claimed } from './attempt.ts';
import { type Claimer, createClaimer } from './claimer.ts';
import type { Gate } from './gate.ts';
import type { MemberOutcome } from './outcome.ts';
import type { PreparedEndpoint } from './prepare.ts';
import { createPreparedEndpoints, type PreparedEndpoints } from './prepared.ts';
import {
  CLAIM_PAUSE_MS,
  type EndpointQueue,
  type Granted,
  giveUp,
  impatient,
  type Member,
  nextBatch,
  SLOT_RETRY_MS,
  worthClaiming,
} from './queues.ts';
import type { Recorder } from './recorder.ts';
import { createSlots, type Slots } from './slots.ts';

export interface SendOptions {
  /** How long a member may wait for a slot before it is denied. */
  patienceMs: number;
  /** Says, when a first failure is recorded, whether the delivery gets (or keeps) a workflow of its own. */
  ownWorkflow: (delivery: LoadedDelivery) => boolean;
  /** No new claims after this aborts. */
  stop: AbortSignal;
}

export interface Sender {
  send(
    members: readonly LoadedDelivery[],
    options: SendOptions,
    onOutcome: (member: LoadedDelivery, outcome: MemberOutcome) => void,
  ): Promise<void>;
  /** One delivery whose claim was granted already (a pump's). `claimedAt`: performance.now() before the claim was asked for. */
  sendClaimed(
    row: LoadedDelivery,
    claimed: Claimed,
    claimedAt: number,
    options: Pick<SendOptions, 'ownWorkflow'>,
  ): Promise<MemberOutcome>;
}

export interface SenderDeps {
  db: Pool;
  egress: Egress;
  recorder: Recorder;
  clock: DbClock;
  gate: Gate;
  keys: MasterKeys;
  log: Log;
}

/** What all groups of a process share. */
interface Parts {
  prepared: PreparedEndpoints;
  claimer: Claimer;
  slots: Slots;
  granted: Granted;
}

/** Receivers refuse signatures that are 5 min off; a clock this wrong is broken. */
const MAX_CLOCK_ERROR_MS = 5_000;
const ALONE = { sent() {}, answered() {}, someoneWaits: () => true };
/** Bodies in memory for one statement: 256 KiB each at the most by default. */
const LOAD_AHEAD = 60;
const SIDE_BY_SIDE = 50;
/** Claims that were granted and can't be used are given back for so long; then they have expired. */
const GIVE_BACK_MS = 30_000;

const unsureOfTime = (deps: SenderDeps): boolean => deps.clock.uncertaintyMs() > MAX_CLOCK_ERROR_MS;

export function createSender(deps: SenderDeps): Sender {
  const parts: Parts = {
    prepared: createPreparedEndpoints(deps),
    claimer: createClaimer(deps.db),
    slots: createSlots(),
    granted: new Map(),
  };
  const { prepared, granted } = parts;
  return {
    async sendClaimed(row, claimed, claimedAt, options) {
      deps.gate.enter(row.tenant);
      try {
        if (unsureOfTime(deps)) {
          await giveBack(deps.db, [
            { delivery: row.delivery, endpoint: row.endpoint, token: claimed.token! },
          ]);
          return { kind: 'left' };
        }
        const endpoints = await prepared.get(new Map([[row.endpoint, claimed.revision!]]));
        return await attempt(deps, row, endpoints.get(row.endpoint), claimed, claimedAt, options, ALONE);
      } catch (error) {
        deps.log.error(
          { err: error, delivery: row.delivery },
          'an attempt could not be finished; its claim will expire',
        );
        return { kind: 'left' };
      } finally {
        deps.gate.leave(row.tenant);
        row.content = null;
      }
    },
    async send(members, options, onOutcome) {
      if (granted.size > 20_000) granted.clear();
      await sendBatch(deps, parts, members, options, onOutcome);
    },
  };
}

async function sendBatch(
  deps: SenderDeps,
  parts: Parts,
  rows: readonly LoadedDelivery[],
  options: SendOptions,
  onOutcome: (member: LoadedDelivery, outcome: MemberOutcome) => void,
): Promise<void> {
  if (unsureOfTime(deps)) {
    throw new Error('This worker does not know the time well enough to sign; it asks the database again.');
  }
  const { slots, granted } = parts;
  const queues = new Map<string, EndpointQueue>();
  for (const row of rows) {
    const queue = queues.get(row.endpoint) ?? {
      waiting: [],
      blockedUntil: 0,
      claimedAt: 0,
      fullSince: null,
    };
    queue.waiting.push({ row, deniedAt: null });
    queues.set(row.endpoint, queue);
  }
  let lastClaimAt = Number.NEGATIVE_INFINITY;
  const begunAt = performance.now();
  let left = rows.length;
  let failure: unknown;
  let wake: () => void = () => {};
  const settle = (member: LoadedDelivery, outcome: MemberOutcome): void => {
    left--;
    onOutcome(member, outcome);
  };

  const run = async (
    member: Member,
    endpoint: PreparedEndpoint | undefined,
    answer: ClaimAnswer,
    claimedAt: number,
  ): Promise<void> => {
    const queue = queues.get(member.row.endpoint)!;
    try {
      const outcome = await attempt(deps, member.row, endpoint, answer, claimedAt, options, {
        sent: () => slots.sent(member.row.endpoint),
        answered: () => slots.answered(member.row.endpoint),
        someoneWaits: () => queue.waiting.length > 0,
      });
      settle(member.row, outcome);
    } catch (error) {
      deps.log.error(
        { err: error, delivery: member.row.delivery },
        'an attempt could not be finished; its claim will expire',
      );
      settle(member.row, { kind: 'left' });
    } finally {
      slots.leave(member.row.endpoint);
      deps.gate.leave(member.row.tenant);
      member.row.content = null;
      wake();
    }
  };
  /** Asked for, and neither granted nor refused. */
  const leave = (members: Iterable<Member>): void => {
    for (const member of members) {
      slots.drop(member.row.endpoint);
      settle(member.row, { kind: 'left' });
    }
  };
  const stopListening = slots.listen((endpoint) => {
    const queue = queues.get(endpoint);
    if (queue === undefined || queue.waiting.length === 0) return;
    queue.blockedUntil = 0;
    wake();
  });

  const claimAll = async (): Promise<void> => {
    while (left > 0) {
      const stopping = options.stop.aborted || failure !== undefined;
      if (stopping) {
        for (const queue of queues.values()) {
          for (const member of queue.waiting.splice(0)) settle(member.row, { kind: 'left' });
        }
        if (left === 0) break;
      }
      const worth = !stopping && worthClaiming(deps.gate, queues, lastClaimAt);
      const { batch, soonMs } = worth
        ? nextBatch(queues, (endpoint) => parts.prepared.peek(endpoint)?.row.cap, slots.taken, deps.gate)
        : { batch: [], soonMs: stopping ? SLOT_RETRY_MS : CLAIM_PAUSE_MS };
      if (batch.length > 0) {
        lastClaimAt = performance.now();
        const asked = new Set(batch);
        for (const { row } of batch) slots.take(row.endpoint);
        try {
          const loading = batch.some(({ row }) => row.content === null)
            ? loadContents(deps.db, withNext(queues, batch))
            : null;
          // A few go side by side, since a lone delivery waits for each call in turn.
          if (batch.length > SIDE_BY_SIDE) await loading;
          else loading?.catch(() => {}); // read below
          const claims = await parts.claimer.claim(
            batch.map(({ row }) => row),
            options.stop,
          );
          if (claims === null) {
            await loading;
            leave(asked);
            continue;
          }
          const { answers, claimedAt } = claims;
          const endpoints = await endpointsOf(deps, parts.prepared, batch, answers, loading);
          for (const member of batch) {
            const answer = answers.get(member.row.delivery)!; // one for each that was asked for
            const queue = queues.get(member.row.endpoint)!;
            asked.delete(member);
            if (answer.verdict !== 'granted') slots.drop(member.row.endpoint);
            if (answer.verdict === 'granted') {
              queue.fullSince = null;
              granted.set(member.row.endpoint, claimedAt);
              deps.gate.enter(member.row.tenant);
              void run(member, endpoints.get(member.row.endpoint), answer, claimedAt);
            } else if (answer.verdict === 'later') {
              member.deniedAt ??= claimedAt;
              queue.blockedUntil = performance.now() + SLOT_RETRY_MS;
              if (impatient(member, granted.get(member.row.endpoint), options.patienceMs))
                settle(member.row, { kind: 'denied' });
              else queue.waiting.push(member);
            } else {
              settle(member.row, {
                kind: 'refused',
                verdict: answer.verdict,
                untilMs: answer.until?.getTime() ?? null,
                n: answer.n,
              });
            }
          }
        } catch (error) {
          failure = error;
          leave(asked);
        }
        continue;
      }
      if (!stopping && giveUp(queues, slots, options.patienceMs, begunAt, settle)) continue;
      // Nothing can be claimed now: wait for an answer, a stop, or the moment to ask again for a slot.
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, soonMs);
        function done(): void {
          clearTimeout(timer);
          options.stop.removeEventListener('abort', done);
          resolve();
        }
        wake = done;
        options.stop.addEventListener('abort', done);
      });
    }
  };
  try {
    await claimAll();
  } finally {
    stopListening();
  }
  if (failure !== undefined) throw failure;
}

/**
 * The rows of a batch, and with a small one those that come next: an endpoint with few slots is claimed for every few
 * milliseconds, and a statement of its own for each handful of bodies would be a tenth of what it takes.
 */
function withNext(queues: ReadonlyMap<string, EndpointQueue>, batch: readonly Member[]): LoadedDelivery[] {
  const rows = batch.map(({ row }) => row);
  if (rows.length >= LOAD_AHEAD) return rows;
  for (const endpoint of new Set(rows.map((row) => row.endpoint))) {
    for (const { row } of queues.get(endpoint)!.waiting) {
      if (rows.length >= LOAD_AHEAD) return rows;
      rows.push(row);
    }
  }
  return rows;
}

/** The endpoints of the granted; when these or the contents can't be read, nothing is sent and the claims are given back. */
async function endpointsOf(
  deps: SenderDeps,
  prepared: PreparedEndpoints,
  batch: readonly Member[],
  answers: ReadonlyMap<string, ClaimAnswer>,
  loading: Promise<void> | null,
): Promise<ReadonlyMap<string, PreparedEndpoint>> {
  const revisions = new Map<string, number>();
  for (const { row } of batch) {
    const { verdict, revision } = answers.get(row.delivery)!;
    if (verdict === 'granted') revisions.set(row.endpoint, revision!);
  }
  try {
    const [endpoints] = await Promise.all([prepared.get(revisions), loading]);
    return endpoints;
  } catch (error) {
    const claims = batch
      .filter(({ row }) => answers.get(row.delivery)!.verdict === 'granted')
      .map(({ row: { delivery, endpoint } }) => ({
        delivery,
        endpoint,
        token: answers.get(delivery)!.token!,
      }));
    void giveBackWhenever(deps, claims);
    throw error;
  }
}

/** When PostgreSQL is back: a claim that is left to expire would count as an attempt that may have been sent. */
async function giveBackWhenever(deps: SenderDeps, claims: Parameters<typeof giveBack>[1]): Promise<void> {
  const until = performance.now() + GIVE_BACK_MS;
  for (let wait = 100; performance.now() < until; wait = Math.min(2_000, wait * 2)) {
    try {
      await giveBack(deps.db, claims);
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait).unref());
    }
  }
}
