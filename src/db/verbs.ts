/**
 * The four verbs and what goes with them, one call each (migrations/functions/verbs.sql has the rules).
 * Nothing is sent without a granted claim.
 */
import type { Db } from './pool.ts';

export const CLAIM_VERDICTS = [
  'granted',
  'busy',
  'early',
  'later',
  'held',
  'expired',
  'cancelled',
  'disabled',
  'stale',
  'gone',
] as const;
export type ClaimVerdict = (typeof CLAIM_VERDICTS)[number];

export interface ClaimAsk {
  delivery: string;
  generation: number;
  n: number; // attempts made, as the caller last read it
}

export interface ClaimAnswer {
  delivery: string;
  verdict: ClaimVerdict;
  token: number | null;
  n: number | null;
  until: Date | null;
  epoch: number | null; // of the endpoint's mode
}

/** Asks for the right to make the next attempt of each delivery. One answer per ask, in no order. */
export async function claim(db: Db, asks: readonly ClaimAsk[]): Promise<ClaimAnswer[]> {
  const result = await db.query({
    name: 'claim',
    text: 'select delivery, verdict, token, n, until, epoch from posthaste.claim($1, $2, $3)',
    values: [asks.map((a) => a.delivery), asks.map((a) => a.generation), asks.map((a) => a.n)],
  });
  return result.rows;
}

/** One attempt as it is written: the log row, and what becomes of the delivery. */
export interface AttemptRecord {
  id: string;
  delivery: string;
  endpoint: string;
  token: number;
  n: number;
  outcome: 'delivered' | 'retrying' | 'dead' | 'cancelled';
  reason: string | null;
  due_at: string | null; // RFC 3339; set when retrying
  step: number;
  burned: number;
  workflow: boolean; // a workflow of its own will wait for due_at
  started_at: string;
  duration_ms: number;
  status: number | null;
  class: string;
  phase: string | null;
  error: string | null;
  request_url: string;
  request_headers: string;
  request_bytes: number;
  head_bytes: number | null;
  response_headers: string | null;
  response_body: string | null; // base64
  response_truncated: boolean;
  fresh_retry: boolean;
  rule: string | null; // which rule decided (src/domain/decide.ts)
  own_due_at: string | null; // RFC 3339; what the delivery's own schedule said
  retry_after_s: number | null; // what the receiver asked for, seconds
  health: 'ok' | 'failure' | 'throttled' | 'configuration' | 'neutral' | 'none'; // what it says of the endpoint; none: a failed test
  epoch: number | null; // of the endpoint's mode when the claim was granted
  revision: number; // of the endpoint's settings it was sent with
  pause_until: string | null; // RFC 3339; Retry-After of a 429 or 503 pauses the endpoint until then
}

export interface Recorded {
  delivery: string;
  token: number;
  state: 'delivered' | 'retrying' | 'dead' | 'cancelled' | 'stale';
  due_at: Date | null;
}

/**
 * Writes attempts and moves their deliveries, guarded by (n, token). One answer per record, in their order; 'stale'
 * when the token was gone, and then nothing was written.
 */
export async function record(db: Db, records: readonly AttemptRecord[]): Promise<Recorded[]> {
  const endpoints = [...new Set(records.map((r) => r.endpoint))];
  const result = await db.query({
    name: 'record',
    text: 'select delivery, token, state, due_at from posthaste.record($1, $2)',
    values: [endpoints, JSON.stringify(records)],
  });
  const stood = new Map<string, Recorded>(result.rows.map((row) => [`${row.delivery} ${row.token}`, row]));
  return records.map(
    ({ delivery, token }) =>
      stood.get(`${delivery} ${token}`) ?? { delivery, token, state: 'stale', due_at: null },
  );
}

export interface GrantedClaim {
  delivery: string;
  endpoint: string;
  token: number;
}

/** Gives back claims that were not sent; answers the deliveries whose claim still stood. */
export async function giveBack(db: Db, claims: readonly GrantedClaim[]): Promise<string[]> {
  const result = await db.query({
    name: 'give_back',
    text: 'select delivery from posthaste.give_back($1, $2, $3)',
    values: [
      [...new Set(claims.map((c) => c.endpoint))],
      claims.map((c) => c.delivery),
      claims.map((c) => c.token),
    ],
  });
  return result.rows.map((row) => row.delivery);
}

/** Turns claims that expired more than graceMs ago into `worker_lost` attempts. Only the scanner calls this. */
export async function reap(
  db: Db,
  shards: readonly number[],
  graceMs: number,
  limit: number,
): Promise<{ delivery: string; n: number }[]> {
  const result = await db.query({
    name: 'reap',
    text: `select delivery, n from posthaste.reap($1, $2 * interval '1 millisecond', $3)`,
    values: [shards, graceMs, limit],
  });
  return result.rows;
}

export interface Finished {
  delivery: string;
  state: 'dead' | 'cancelled';
  reason: string;
  workflow: boolean; // one sleeps for it and should be told
}

/** Ends deliveries that need no further attempt: past deadline, cancelled, endpoint gone. Others are left alone. */
export async function finish(db: Db, deliveries: readonly string[]): Promise<Finished[]> {
  const result = await db.query({
    name: 'finish',
    text: 'select delivery, state, reason, workflow from posthaste.finish($1)',
    values: [deliveries],
  });
  return result.rows;
}

/**
 * Deliveries that found no slot or token for too long leave their group, or (dispatch null) wait in their workflow,
 * for the pump; their endpoint goes to mode pump. Rows that are in another group by now stay there.
 */
export async function park(db: Db, deliveries: readonly string[], dispatch: string | null): Promise<void> {
  await db.query({ name: 'park', text: 'select posthaste.park($1, $2)', values: [deliveries, dispatch] });
}

export interface PumpAnswer {
  status: 'pumping' | 'idle' | 'waiting' | 'shared' | 'busy' | 'off';
  /** When it makes sense to ask again; null: at once, or when a request has been answered. */
  until: Date | null;
  epoch: number | null;
  health: string | null;
  /** Held deliveries left, counted to 501. */
  remaining: number | null;
  claims: { delivery: string; n: number; generation: number; token: number }[] | null;
}

/** A number for a new run of a pump, to hold its endpoint's lease with. */
export async function newPump(db: Db): Promise<number> {
  const result = await db.query({
    name: 'new_pump',
    text: `select nextval('posthaste.claim_tokens') as token`,
  });
  return result.rows[0].token;
}

/** What the endpoint's one pump may send now; renews its lease. May end mode pump instead (status shared). */
export async function claimPump(
  db: Db,
  endpoint: string,
  pump: number,
  limit: number,
  leaseMs: number,
): Promise<PumpAnswer> {
  const result = await db.query({
    name: 'claim_pump',
    text: `select status, until, epoch, health, remaining, claims from posthaste.claim_pump($1, $2, $3, $4 * interval '1 millisecond')`,
    values: [endpoint, pump, limit, leaseMs],
  });
  return result.rows[0];
}

/** Gives the lease up; `until`: this pump's workflow will look again by then. */
export async function leavePump(db: Db, endpoint: string, pump: number, until: Date | null): Promise<void> {
  await db.query({
    name: 'leave_pump',
    text: 'select posthaste.leave_pump($1, $2, $3)',
    values: [endpoint, pump, until],
  });
}

/** Ends the time of a claimed delivery that can't be sent; `finish` then ends the delivery. */
export async function expireNow(db: Db, delivery: string, token: number): Promise<void> {
  await db.query({
    name: 'expire_now',
    text: 'update posthaste.work set deadline = clock_timestamp() where delivery = $1 and token = $2',
    values: [delivery, token],
  });
}
