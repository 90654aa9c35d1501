/**
 * What the claim grants at one endpoint: the pure specification of the SQL in migrations/functions/pump.sql, which is
 * tested against it, and of the simulator's sender. Milliseconds, requests, requests per second.
 */

/** The columns of an endpoint that decide how many requests may start now. */
export interface PermitRow {
  readonly cap: number; // 1 to 1,000 requests in flight
  readonly inFlight: number;
  readonly failsInRow: number; // failures since the last 2xx, as recorded
  readonly silentMs: number; // something is in flight and nothing came back for so long, else 0
  readonly probeAtMs: number | null; // not null: one request at a time, from then on
  readonly rate: number | null; // the lower of the allowed and the configured rate, null: unlimited
  readonly tokens: number;
  readonly tokensAtMs: number; // when `tokens` was true; may lie ahead, after a pause
  readonly pauseUntilMs: number | null;
}

/** So many failures in a row leave two requests in flight, so many none until the health step has judged. */
const WARY_AFTER = 5;
const STOP_AFTER = 20;
const WARY_CAP = 2;
/** Nothing came back for so long: the receiver hangs, and each further request would hang with it. */
const SILENCE_MS = 2_000;
/** A bucket that holds a single token never fills at 1/s when its readers round: two is the least. */
const LEAST_BURST = 2;
/** 2.9999999 tokens are three: sums of fractions fall short by a rounding. */
const ROUNDING = 1e-9;

/** In-flight requests allowed before rate and probes. */
function effectiveCap(row: PermitRow): number {
  if (row.failsInRow >= STOP_AFTER) return 0;
  if (row.failsInRow >= WARY_AFTER) return Math.min(row.cap, WARY_CAP);
  if (row.silentMs > SILENCE_MS) return Math.max(1, Math.ceil(row.cap / 3));
  return row.cap;
}

/**
 * How many requests may start now, and the bucket before they take their tokens (Infinity without a rate).
 * The caller takes a token per grant; a granted probe puts probe_at out of reach until the health step re-arms it.
 */
export function permits(row: PermitRow, nowMs: number): { slots: number; tokens: number } {
  const elapsed = Math.max(0, nowMs - row.tokensAtMs) / 1000;
  const tokens =
    row.rate === null
      ? Number.POSITIVE_INFINITY
      : Math.min(Math.max(LEAST_BURST, row.rate), row.tokens + row.rate * elapsed);
  if (row.pauseUntilMs !== null && nowMs < row.pauseUntilMs) return { slots: 0, tokens };
  if (row.probeAtMs !== null) return { slots: nowMs >= row.probeAtMs && row.inFlight === 0 ? 1 : 0, tokens };
  const room = effectiveCap(row) - row.inFlight;
  return { slots: Math.max(0, Math.min(room, Math.floor(tokens + ROUNDING))), tokens };
}

/**
 * Shares `take` grants of a pump between rows created since the recovery began and older ones: live first, but the
 * backlog's share is set aside by the running count, so that small batches do not round it away.
 * @param pumped grants of this pump before these. @param share the endpoint's catch_up_share, 0 to 1.
 */
export function split(
  take: number,
  live: number,
  backlog: number,
  pumped: number,
  share: number,
): { live: number; backlog: number } {
  const reserved = Math.floor((pumped + take) * share) - Math.floor(pumped * share);
  const takenLive = Math.min(live, take - Math.min(reserved, backlog));
  return { live: takenLive, backlog: Math.min(backlog, take - takenLive) };
}
