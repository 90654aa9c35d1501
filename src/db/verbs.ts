/**
 * The four verbs and what goes with them, one call each (migrations/functions/verbs.sql has the rules).
 * Nothing is sent without a granted claim.
 */
import { bools, byteas, float4s, int2s, int4s, int8s, texts, timestamps } from './arrays.ts';
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
  endpoint: string;
  kind: 'live' | 'replay' | 'test';
  lane: string;
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
  revision: number | null; // of the endpoint's settings
}

/**
 * Asks for the right to make the next attempt of each delivery. One answer per ask, in no order; of one endpoint's, those
 * that stand first are granted first.
 */
export async function claim(db: Db, asks: readonly ClaimAsk[]): Promise<ClaimAnswer[]> {
  const places = new Map<string, { at: number; sends: number; tests: number; bulk: number }>();
  const ats: number[] = [];
  for (const { endpoint, lane } of asks) {
    let place = places.get(endpoint);
    if (place === undefined) {
      place = { at: places.size + 1, sends: 0, tests: 0, bulk: 0 };
      places.set(endpoint, place);
    }
    if (lane !== 'bulk') place.bulk++; // replays come behind live traffic
    ats.push(place.at);
  }
  const ranks = asks.map(({ endpoint, kind, lane }) => {
    const place = places.get(endpoint)!;
    return kind === 'test' ? ++place.tests : lane === 'bulk' ? ++place.bulk : ++place.sends;
  });
  const result = await db.query({
    name: 'claim',
    text: 'select delivery, verdict, token, n, until, epoch, revision from posthaste.claim($1, $2, $3, $4, $5, $6)',
    values: [
      texts([...places.keys()]),
      texts(asks.map((a) => a.delivery)),
      int4s(ats),
      int4s(ranks),
      int4s(asks.map((a) => a.generation)),
      int4s(asks.map((a) => a.n)),
    ],
  });
  return result.rows;
}

/** One attempt as it is written: the log row, and what becomes of the delivery. Moments are epoch milliseconds. */
export interface AttemptRecord {
  id: string;
  delivery: string;
  endpoint: string;
  token: number;
  n: number;
  outcome: 'delivered' | 'retrying' | 'dead' | 'cancelled';
  reason: string | null;
  due_at: number | null; // set when retrying
  step: number;
  burned: number;
  workflow: boolean; // a workflow of its own will wait for due_at
  started_at: number;
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
  response_body: Buffer | null;
  response_truncated: boolean;
  fresh_retry: boolean;
  rule: string | null; // which rule decided (src/domain/decide.ts)
  own_due_at: number | null; // what the delivery's own schedule said
  retry_after_s: number | null; // what the receiver asked for, seconds
  health: 'ok' | 'failure' | 'throttled' | 'configuration' | 'neutral' | 'none'; // what it says of the endpoint; none: a failed test
  epoch: number | null; // of the endpoint's mode when the claim was granted
  revision: number; // of the endpoint's settings it was sent with
  pause_until: number | null; // Retry-After of a 429 or 503 pauses the endpoint until then
}

export interface Recorded {
  delivery: string;
  token: number;
  state: 'delivered' | 'retrying' | 'dead' | 'cancelled' | 'stale';
  due_at: Date | null;
}

/** In the order of posthaste.record's parameters. */
const RECORD_COLUMNS: readonly ((records: readonly AttemptRecord[]) => Buffer | null)[] = [
  (records) => texts(records.map((r) => r.delivery)),
  (records) => int8s(records.map((r) => r.token)),
  (records) => int4s(records.map((r) => r.n)),
  (records) => texts(records.map((r) => r.outcome)),
  (records) => texts(records.map((r) => r.reason)),
  (records) => timestamps(records.map((r) => r.due_at)),
  (records) => int4s(records.map((r) => r.step)),
  (records) => int4s(records.map((r) => r.burned)),
  (records) => bools(records.map((r) => r.workflow)),
  (records) => texts(records.map((r) => r.id)),
  (records) => timestamps(records.map((r) => r.started_at)),
  (records) => float4s(records.map((r) => r.duration_ms)),
  (records) => int2s(records.map((r) => r.status)),
  (records) => texts(records.map((r) => r.class)),
  (records) => texts(records.map((r) => r.phase)),
  (records) => texts(records.map((r) => r.error)),
  (records) => texts(records.map((r) => r.request_url)),
  (records) => texts(records.map((r) => r.request_headers)),
  (records) => int4s(records.map((r) => r.request_bytes)),
  (records) => int4s(records.map((r) => r.head_bytes)),
  (records) => texts(records.map((r) => r.response_headers)),
  (records) => byteas(records.map((r) => r.response_body)),
  (records) => bools(records.map((r) => r.response_truncated)),
  (records) => bools(records.map((r) => r.fresh_retry)),
  (records) => texts(records.map((r) => r.rule)),
  (records) => timestamps(records.map((r) => r.own_due_at)),
  (records) => int4s(records.map((r) => r.retry_after_s)),
  (records) => texts(records.map((r) => r.health)),
  (records) => int4s(records.map((r) => r.epoch)),
  (records) => int4s(records.map((r) => r.revision)),
  (records) => timestamps(records.map((r) => r.pause_until)),
];
const RECORD = `select place, state, due_at from posthaste.record($1, ${RECORD_COLUMNS.map((_, i) => `$${i + 2}`).join(', ')})`;

/**
 * Writes attempts and moves their deliveries, guarded by (n, token). One answer per record, in their order; 'stale'
 * when the token was gone, and then nothing was written.
 */
export async function record(db: Db, records: readonly AttemptRecord[]): Promise<Recorded[]> {
  const endpoints = [...new Set(records.map((r) => r.endpoint))];
  const result = await db.query({
    name: 'record',
    text: RECORD,
    values: [endpoints, ...RECORD_COLUMNS.map((column) => column(records))],
  });
  const answers: Recorded[] = records.map(({ delivery, token }) => ({
    delivery,
    token,
    state: 'stale',
    due_at: null,
  }));
  for (const { place, state, due_at } of result.rows) {
    const answer = answers[place - 1]!;
    answer.state = state;
    answer.due_at = due_at;
  }
  return answers;
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
  revision: number | null; // of the endpoint's settings
  health: string | null;
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
    text: `select status, until, epoch, revision, health, claims from posthaste.claim_pump($1, $2, $3, $4 * interval '1 millisecond')`,
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
