/**
 * The last minute of an endpoint's results in six buckets of ten seconds, and what they say. Called by health.ts.
 * Counted at completion; results of an older epoch never get here.
 */
import type { Bucket, Fact } from './health-types.ts';

export const BUCKET_MS = 10_000;
export const WINDOW_MS = 60_000;

const startOf = (atMs: number): number => Math.floor(atMs / BUCKET_MS) * BUCKET_MS;

function bucketAt(window: Bucket[], atMs: number): Bucket {
  const startMs = startOf(atMs);
  const found = window.find((bucket) => bucket.startMs === startMs);
  if (found !== undefined) return found;
  const bucket = { startMs, ok: 0, fail: 0, throttled: 0, all: 0, slow: 0 };
  window.push(bucket);
  window.sort((a, b) => a.startMs - b.startMs);
  return bucket;
}

/** Without what is older than a minute; nor what a clock that was set back has left in the future. */
export function prune(window: readonly Bucket[], nowMs: number): Bucket[] {
  const newest = startOf(nowMs);
  return window.filter(({ startMs }) => startMs > newest - WINDOW_MS && startMs <= newest);
}

/** `count` plain successes, spread evenly over `fromMs`…`toMs`, as far as that lies within the window. */
export function addSpread(
  window: readonly Bucket[],
  count: number,
  fromMs: number,
  toMs: number,
  nowMs: number,
): Bucket[] {
  const next = window.map((bucket) => ({ ...bucket }));
  if (count <= 0) return next;
  const end = Math.min(toMs, nowMs);
  const length = end - fromMs;
  if (length <= 0) {
    const bucket = bucketAt(next, end);
    bucket.ok += count;
    bucket.all += count;
    return prune(next, nowMs);
  }
  const begin = Math.max(fromMs, startOf(nowMs) - WINDOW_MS + BUCKET_MS);
  for (let at = begin; at < end; at = startOf(at) + BUCKET_MS) {
    const share = (count * (Math.min(end, startOf(at) + BUCKET_MS) - at)) / length;
    const bucket = bucketAt(next, at);
    bucket.ok += share;
    bucket.all += share;
  }
  return prune(next, nowMs);
}

/** Adds what a recording batch reports, at its time. Mutates `window`. */
export function addFact(window: Bucket[], fact: Fact, nowMs: number): void {
  const bucket = bucketAt(window, Math.min(fact.atMs, nowMs));
  bucket.ok += fact.ok;
  bucket.fail += fact.fail;
  bucket.throttled += fact.throttled;
  bucket.slow += fact.slow;
  bucket.all += fact.ok + fact.fail + fact.throttled + fact.config + fact.neutral;
}

export type Totals = Omit<Bucket, 'startMs'>;

export function totals(window: readonly Bucket[]): Totals {
  const sum: Totals = { ok: 0, fail: 0, throttled: 0, all: 0, slow: 0 };
  for (const bucket of window) {
    sum.ok += bucket.ok;
    sum.fail += bucket.fail;
    sum.throttled += bucket.throttled;
    sum.all += bucket.all;
    sum.slow += bucket.slow;
  }
  return sum;
}

/** 2xx per second in the busiest ten seconds: what the receiver is known to bear. */
export function busiestRate(window: readonly Bucket[]): number {
  return window.reduce((most, bucket) => Math.max(most, bucket.ok), 0) / (BUCKET_MS / 1000);
}
