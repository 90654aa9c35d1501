/**
 * claim → POST → record, for one delivery or hundreds. Called by send.ts (delivery/<id>) and dispatch.ts
 * (dispatch/<id>), which load the rows and act on the outcomes.
 *
 * Every member has its own try and ends as an outcome; nothing here waits for the slowest. Members without a slot
 * wait for one of their endpoint's to be freed, and ask again in the same breath. Throws only when PostgreSQL can't
 * be reached before something was claimed: what has been sent is always recorded first.
 *
 * A crash: before the claim, nothing happened; between claim and record, the reaper writes attempt n as worker_lost
 * and the delivery is due again (the receiver may have it: at least once); after the record, nothing is lost.
 */

import type { DbClock } from '../db/clock.ts';
import { type LoadedDelivery, type LoadedEndpoint, loadBodies, loadEndpoints } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import { type ClaimAnswer, type ClaimVerdict, claim, giveBack } from '../db/verbs.ts';
import type { OutcomeClass } from '../domain/classes.ts';
import type { Egress, PostResult } from '../egress/post.ts';
import type { Log } from '../log.ts';
import type { MasterKeys } from '../secrets.ts';
import type { Gate } from './gate.ts';
import { type PreparedEndpoint, prepareEndpoint, prepareRequest } from './prepare.ts';
import type { Recorder } from './recorder.ts';
import { classifyResult } from './result.ts';

/** What became of one member of a batch. */
export type MemberOutcome =
  | {
      kind: 'recorded';
      state: 'delivered' | 'retrying' | 'dead' | 'cancelled' | 'stale';
      dueAtMs: number | null;
      n: number;
      class: OutcomeClass;
      status: number | null;
      reason: string | null;
      workflow: boolean;
      durationMs: number;
      revision: number; // of the endpoint, as it was sent to
    }
  | {
      kind: 'refused';
      verdict: Exclude<ClaimVerdict, 'granted' | 'later'>;
      untilMs: number | null;
      n: number | null;
    }
  | { kind: 'denied' } // no slot for longer than patienceMs
  | { kind: 'left' }; // this process is stopping; nothing was sent

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

/** Claims last deadline + 10 s; a request that has not been written 9 s after the claim was asked for never is. */
const CLAIM_MARGIN_MS = 9_000;
const MAX_CLAIM = 250;
/** Receivers refuse signatures that are 5 min off; a clock this wrong is broken. */
const MAX_CLOCK_ERROR_MS = 5_000;
const ENDPOINT_TTL_MS = 1_000;
const SLOT_RETRY_MS = 100;
/** A claim locks its endpoints whatever its size: while this process is nearly full, room is collected for this long. */
const CLAIM_PAUSE_MS = 20;
const WORTH_CLAIMING = 100;
/** The same for one endpoint's slots. */
const SLOT_PAUSE_MS = 5;

export function createSender(deps: SenderDeps): Sender {
  const granted: Granted = new Map();
  return {
    async send(members, options, onOutcome) {
      if (granted.size > 20_000) granted.clear();
      await sendBatch(deps, granted, members, options, onOutcome);
    },
  };
}

/** When an endpoint last gave a slot to anyone in this process: one that moves is not given up on. */
type Granted = Map<string, number>;

interface Member {
  row: LoadedDelivery;
  deniedAt: number | null;
}

interface EndpointQueue {
  waiting: Member[];
  inFlight: number;
  blockedUntil: number; // performance.now(); a denial makes it wait for a free slot or a moment
  claimedAt: number; // when it was last asked for
  fullSince: number | null; // since when this group alone fills the endpoint's cap, with members waiting behind
}

async function sendBatch(
  deps: SenderDeps,
  granted: Granted,
  rows: readonly LoadedDelivery[],
  options: SendOptions,
  onOutcome: (member: LoadedDelivery, outcome: MemberOutcome) => void,
): Promise<void> {
  if (deps.clock.uncertaintyMs() > MAX_CLOCK_ERROR_MS) {
    throw new Error('This worker does not know the time well enough to sign; it asks the database again.');
  }
  const queues = new Map<string, EndpointQueue>();
  for (const row of rows) {
    const queue = queues.get(row.endpoint) ?? {
      waiting: [],
      inFlight: 0,
      blockedUntil: 0,
      claimedAt: 0,
      fullSince: null,
    };
    queue.waiting.push({ row, deniedAt: null });
    queues.set(row.endpoint, queue);
  }
  let endpoints = new Map<string, PreparedEndpoint>();
  let endpointsAt = Number.NEGATIVE_INFINITY;
  let lastClaimAt = Number.NEGATIVE_INFINITY;
  const begunAt = performance.now();
  let left = rows.length;
  let failure: unknown;
  let wake: () => void = () => {};
  const settle = (member: LoadedDelivery, outcome: MemberOutcome): void => {
    left--;
    onOutcome(member, outcome);
  };

  const run = async (member: Member, answer: ClaimAnswer, claimedAt: number): Promise<void> => {
    const queue = queues.get(member.row.endpoint)!;
    try {
      const outcome = await attempt(
        deps,
        member.row,
        endpoints.get(member.row.endpoint),
        answer,
        claimedAt,
        options,
        () => queue.waiting.length > 0,
      );
      settle(member.row, outcome);
    } catch (error) {
      deps.log.error(
        { err: error, delivery: member.row.delivery },
        'an attempt could not be finished; its claim will expire',
      );
      settle(member.row, { kind: 'left' });
    } finally {
      queue.inFlight--;
      queue.blockedUntil = 0;
      deps.gate.leave(member.row.tenant);
      member.row.body = null;
      wake();
    }
  };

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
      ? nextBatch(queues, endpoints, deps.gate)
      : { batch: [], soonMs: stopping ? SLOT_RETRY_MS : CLAIM_PAUSE_MS };
    if (batch.length > 0) {
      lastClaimAt = performance.now();
      try {
        if (lastClaimAt - endpointsAt > ENDPOINT_TTL_MS) {
          endpoints = await prepareEndpoints(deps, await loadEndpoints(deps.db, [...queues.keys()]));
          endpointsAt = lastClaimAt;
        }
        await loadBodies(
          deps.db,
          batch.map(({ row }) => row),
        );
        const claimedAt = performance.now();
        const answers = await claim(
          deps.db,
          batch.map(({ row }) => ({ delivery: row.delivery, generation: row.generation, n: row.n })),
        );
        const byDelivery = new Map(answers.map((answer) => [answer.delivery, answer]));
        for (const member of batch) {
          const answer = byDelivery.get(member.row.delivery)!;
          const queue = queues.get(member.row.endpoint)!;
          if (answer.verdict === 'granted') {
            queue.inFlight++;
            queue.fullSince = null;
            granted.set(member.row.endpoint, claimedAt);
            deps.gate.enter(member.row.tenant);
            void run(member, answer, claimedAt);
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
        for (const member of batch) settle(member.row, { kind: 'left' });
      }
      continue;
    }
    if (!stopping && giveUp(queues, granted, options.patienceMs, begunAt, settle)) continue;
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
  if (failure !== undefined) throw failure;
}

/** No slot for patienceMs and none for its neighbours either, or none for five times as long whatever they got. */
function impatient(member: Member, grantedAt: number | undefined, patienceMs: number): boolean {
  const now = performance.now();
  return (
    now - member.deniedAt! >= 5 * patienceMs || now - Math.max(member.deniedAt!, grantedAt ?? 0) >= patienceMs
  );
}

/**
 * Members behind their own group's requests are given up on like those whom others keep from a slot: an endpoint that
 * hangs would else keep the group, and what counts it as a first attempt, for as long as all its members take.
 */
function giveUp(
  queues: Map<string, EndpointQueue>,
  granted: Granted,
  patienceMs: number,
  begunAt: number,
  settle: (member: LoadedDelivery, outcome: MemberOutcome) => void,
): boolean {
  const now = performance.now();
  let some = false;
  for (const [endpoint, queue] of queues) {
    if (queue.fullSince === null || queue.waiting.length === 0) continue;
    const still = now - Math.max(queue.fullSince, granted.get(endpoint) ?? 0);
    if (still < patienceMs && now - begunAt < 5 * patienceMs) continue;
    for (const member of queue.waiting.splice(0)) settle(member.row, { kind: 'denied' });
    some = true;
  }
  return some;
}

/** Not for a few places at the gate when many wait and the last claim was only just made. */
function worthClaiming(gate: Gate, queues: Map<string, EndpointQueue>, lastClaimAt: number): boolean {
  const free = gate.free();
  if (free >= WORTH_CLAIMING || performance.now() - lastClaimAt >= CLAIM_PAUSE_MS) return true;
  let waiting = 0;
  for (const queue of queues.values()) waiting += queue.waiting.length;
  return waiting <= free;
}

/**
 * Up to MAX_CLAIM members, at most as many of an endpoint as its cap lets this group have in flight; and when to look
 * again if there are none.
 */
function nextBatch(
  queues: Map<string, EndpointQueue>,
  endpoints: Map<string, PreparedEndpoint>,
  gate: Gate,
): { batch: Member[]; soonMs: number } {
  const batch: Member[] = [];
  let soonMs = SLOT_RETRY_MS;
  const now = performance.now();
  const room = Math.min(gate.free(), MAX_CLAIM);
  const taken = new Map<string, number>(); // of this batch, per tenant
  for (const [endpoint, queue] of queues) {
    if (batch.length >= room) break;
    if (queue.waiting.length === 0 || queue.blockedUntil > now) continue;
    const cap = endpoints.get(endpoint)?.row.cap ?? 10;
    const { tenant } = queue.waiting[0]!.row;
    const share = gate.freeFor(tenant) - (taken.get(tenant) ?? 0);
    const take = Math.min(cap - queue.inFlight, room - batch.length, share, queue.waiting.length);
    if (cap - queue.inFlight < 1) queue.fullSince ??= now;
    // At its cap an endpoint frees slots one by one; they are claimed by the half, or after a moment.
    const few = take < Math.min(cap / 2, queue.waiting.length) && queue.inFlight > 0;
    if (take < 1) continue;
    if (few && now - queue.claimedAt < SLOT_PAUSE_MS) {
      soonMs = SLOT_PAUSE_MS;
      continue;
    }
    queue.claimedAt = now;
    taken.set(tenant, (taken.get(tenant) ?? 0) + take);
    batch.push(...queue.waiting.splice(0, take));
  }
  return { batch, soonMs };
}

async function prepareEndpoints(
  deps: SenderDeps,
  rows: readonly LoadedEndpoint[],
): Promise<Map<string, PreparedEndpoint>> {
  const prepared = new Map<string, PreparedEndpoint>();
  for (const row of rows) {
    try {
      prepared.set(row.id, prepareEndpoint(row, deps.keys));
    } catch (error) {
      // Left out: its attempts are recorded as a fault of ours, which burns nothing and pages someone.
      deps.log.error(
        { err: error, endpoint: row.id },
        'an endpoint could not be prepared; check POSTHASTE_MASTER_KEYS',
      );
    }
  }
  return prepared;
}

/** One claimed attempt, from signature to record. */
async function attempt(
  deps: SenderDeps,
  row: LoadedDelivery,
  endpoint: PreparedEndpoint | undefined,
  claimed: ClaimAnswer,
  claimedAt: number,
  options: SendOptions,
  someoneWaits: () => boolean,
): Promise<MemberOutcome> {
  const startBefore = claimedAt + CLAIM_MARGIN_MS;
  let result: PostResult | undefined;
  let logged = '[]';
  let bytes = 0;
  if (endpoint !== undefined) {
    const request = prepareRequest(row, endpoint, deps.clock.now());
    logged = request.logged;
    bytes = request.body.length;
    result = await deps.egress.post({
      url: endpoint.row.url,
      tenant: row.tenant,
      endpoint: row.endpoint,
      revision: endpoint.row.revision,
      headers: request.headers,
      body: request.body,
      timeoutMs: endpoint.row.timeout_ms,
      connections: endpoint.row.cap,
      tls: endpoint.tls,
      startBefore,
    });
    if (!result.written && (result.class === 'not_started' || result.class === 'cancelled')) {
      await giveBack(deps.db, [{ delivery: row.delivery, endpoint: row.endpoint, token: claimed.token! }]);
      return { kind: 'left' };
    }
  }
  const attempted = classifyResult({
    row,
    endpoint,
    claimed,
    result,
    logged,
    bytes,
    nowMs: deps.clock.now(),
    ownWorkflow: options.ownWorkflow,
  });
  const recording = deps.recorder.add(attempted.record);
  if (someoneWaits()) deps.recorder.flush();
  const recorded = await recording;
  return {
    kind: 'recorded',
    state: recorded.state,
    dueAtMs: recorded.due_at?.getTime() ?? null,
    n: claimed.n!,
    class: attempted.class,
    status: attempted.record.status,
    reason: attempted.record.reason,
    workflow: attempted.record.workflow,
    durationMs: attempted.record.duration_ms,
    revision: endpoint?.row.revision ?? 0,
  };
}
