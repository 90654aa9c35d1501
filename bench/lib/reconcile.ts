/** Events sent beside requests received: what is lost, what came twice, how long it took. Pure. */

export interface Sent {
  id: string;
  /** Milliseconds of clock.ts; null: waited in the outbox, so that its age says nothing. */
  at: number | null;
  tenant: string;
}

export interface Received {
  id: string;
  at: number;
  /** 0: no answer was given. */
  status: number;
  path: string;
}

export interface Latency {
  p50: number;
  p95: number;
  p99: number;
  max: number;
}

export interface Reconciled {
  expected: number;
  delivered: number;
  lost: number;
  duplicates: number;
  /** All requests for the events counted, whatever was answered. */
  requests: number;
  latency: Latency | null;
  /** Of the 2xx: first and last. */
  firstAt: number;
  lastAt: number;
}

/** Quantile of sorted numbers, nearest rank. */
export function quantile(sorted: readonly number[], q: number): number {
  if (sorted.length === 0) return 0;
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * q) - 1))]!;
}

export function latencyOf(values: readonly number[]): Latency | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return {
    p50: quantile(sorted, 0.5),
    p95: quantile(sorted, 0.95),
    p99: quantile(sorted, 0.99),
    max: sorted.at(-1)!,
  };
}

/** @param fanOut endpoints that each event goes to. Requests for events not in `sent` are left out. */
export function reconcile(sent: readonly Sent[], received: readonly Received[], fanOut = 1): Reconciled {
  const sentAt = new Map(sent.map(({ id, at }) => [id, at]));
  const firsts = new Map<string, number>(); // by path and event
  let duplicates = 0;
  let requests = 0;
  let firstAt = Number.POSITIVE_INFINITY;
  let lastAt = 0;
  const latencies: number[] = [];
  for (const { id, at, status, path } of received) {
    const from = sentAt.get(id);
    if (from === undefined) continue;
    requests++;
    if (status < 200 || status > 299) continue;
    const key = `${path} ${id}`;
    if (firsts.has(key)) {
      duplicates++;
      continue;
    }
    firsts.set(key, at);
    firstAt = Math.min(firstAt, at);
    lastAt = Math.max(lastAt, at);
    if (from !== null) latencies.push(at - from);
  }
  const expected = sent.length * fanOut;
  return {
    expected,
    delivered: firsts.size,
    lost: expected - firsts.size,
    duplicates,
    requests,
    latency: latencyOf(latencies),
    firstAt,
    lastAt,
  };
}

/** Counts per second from `from` on; index 0 is the first second. */
export function perSecond(times: readonly number[], from: number, seconds: number): number[] {
  const counts = new Array<number>(seconds).fill(0);
  for (const at of times) {
    const index = Math.floor((at - from) / 1_000);
    if (index >= 0 && index < seconds) counts[index]!++;
  }
  return counts;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
