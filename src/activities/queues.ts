/**
 * Who of a batch is claimed next, and who has waited long enough. One queue per endpoint; used by sender.ts alone.
 * Times are performance.now() milliseconds.
 */
import type { LoadedDelivery } from '../db/load.ts';
import type { Gate } from './gate.ts';
import type { MemberOutcome } from './outcome.ts';
import type { Slots } from './slots.ts';

const MAX_CLAIM = 250;
export const SLOT_RETRY_MS = 100;
/** Every member is under way: an answer wakes the group. */
const ALL_SENT_MS = 10_000;
/** A claim locks its endpoints whatever its size: while this process is nearly full, room is collected for this long. */
export const CLAIM_PAUSE_MS = 20;
const WORTH_CLAIMING = 100;
/** The same for one endpoint's slots. */
const SLOT_PAUSE_MS = 5;

/** When an endpoint last gave a slot to anyone in this process: one that moves is not given up on. */
export type Granted = Map<string, number>;

export interface Member {
  row: LoadedDelivery;
  deniedAt: number | null;
}

export interface EndpointQueue {
  waiting: Member[];
  blockedUntil: number; // performance.now(); a denial makes it wait for a free slot or a moment
  claimedAt: number; // when it was last asked for
  fullSince: number | null; // since when this process fills the endpoint's cap, with members waiting behind
}

/** No slot for patienceMs and none for its neighbours either, or none for five times as long whatever they got. */
export function impatient(member: Member, grantedAt: number | undefined, patienceMs: number): boolean {
  const now = performance.now();
  return (
    now - member.deniedAt! >= 5 * patienceMs || now - Math.max(member.deniedAt!, grantedAt ?? 0) >= patienceMs
  );
}

/**
 * Members behind their own process's requests are given up on like those whom others keep from a slot: an endpoint that
 * hangs would else keep the group, and what counts it as a first attempt, for as long as all its members take.
 */
export function giveUp(
  queues: Map<string, EndpointQueue>,
  slots: Pick<Slots, 'silentSince'>,
  patienceMs: number,
  begunAt: number,
  settle: (member: LoadedDelivery, outcome: MemberOutcome) => void,
): boolean {
  const now = performance.now();
  let some = false;
  for (const [endpoint, queue] of queues) {
    if (queue.fullSince === null || queue.waiting.length === 0) continue;
    // While answers wait to be recorded, or claims to be granted, the endpoint is not what is slow.
    const silentSince = slots.silentSince(endpoint);
    if (silentSince === null) continue;
    const still = now - Math.max(queue.fullSince, silentSince);
    if (still < patienceMs && now - begunAt < 5 * patienceMs) continue;
    for (const member of queue.waiting.splice(0)) settle(member.row, { kind: 'denied' });
    some = true;
  }
  return some;
}

/** Not for a few places at the gate when many wait and the last claim was only just made. */
export function worthClaiming(gate: Gate, queues: Map<string, EndpointQueue>, lastClaimAt: number): boolean {
  const free = gate.free();
  if (free >= WORTH_CLAIMING || performance.now() - lastClaimAt >= CLAIM_PAUSE_MS) return true;
  let waiting = 0;
  for (const queue of queues.values()) waiting += queue.waiting.length;
  return waiting <= free;
}

/**
 * Up to MAX_CLAIM members, at most as many of an endpoint as its cap leaves beside what this process has in flight there;
 * and when to look again if there are none.
 */
export function nextBatch(
  queues: Map<string, EndpointQueue>,
  capOf: (endpoint: string) => number | undefined,
  flyingAt: (endpoint: string) => number,
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
    const cap = capOf(endpoint) ?? 10;
    const flying = flyingAt(endpoint);
    const { tenant } = queue.waiting[0]!.row;
    const share = gate.freeFor(tenant) - (taken.get(tenant) ?? 0);
    const take = Math.min(cap - flying, room - batch.length, share, queue.waiting.length);
    if (cap - flying < 1) queue.fullSince ??= now;
    // At its cap an endpoint frees slots one by one; they are claimed by the half, or after a moment.
    const few = take < Math.min(cap / 2, queue.waiting.length) && flying > 0;
    if (take < 1) continue;
    if (few && now - queue.claimedAt < SLOT_PAUSE_MS) {
      soonMs = SLOT_PAUSE_MS;
      continue;
    }
    queue.claimedAt = now;
    taken.set(tenant, (taken.get(tenant) ?? 0) + take);
    batch.push(...queue.waiting.splice(0, take));
  }
  const waits = (): boolean => [...queues.values()].some((queue) => queue.waiting.length > 0);
  return { batch, soonMs: batch.length > 0 || waits() ? soonMs : ALL_SENT_MS };
}
