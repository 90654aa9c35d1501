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
}

/** Asks for the right to make the next attempt of each delivery. One answer per ask, in no order. */
export async function claim(db: Db, asks: readonly ClaimAsk[]): Promise<ClaimAnswer[]> {
  const result = await db.query({
    name: 'claim',
    text: 'select delivery, verdict, token, n, until from posthaste.claim($1, $2, $3)',
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
 * Deliveries that found no slot for too long leave their group, or (dispatch null) their workflow, for the held lane.
 * Rows that are in another group by now stay there.
 */
export async function park(db: Db, deliveries: readonly string[], dispatch: string | null): Promise<void> {
  await db.query({ name: 'park', text: 'select posthaste.park($1, $2)', values: [deliveries, dispatch] });
}
