/** The other shape that scenarios share: events come through the API at a rate, and how long each takes is measured. */
import type { Bench } from '../lib/bench.ts';
import type { Posthaste } from '../lib/posthaste.ts';
import { type Received, reconcile, type Sent } from '../lib/reconcile.ts';
import { seedEndpoints } from '../lib/seed.ts';
import type { Figures } from '../lib/types.ts';

/** Unmeasured, at the same rate: a process that has just started is not yet compiled. */
const WARM_UP_SECONDS = 6;

/** `count` tenants with an endpoint each, `/<group>/<n>`; answers the tenants. */
export async function seedGroup(
  bench: Bench,
  group: string,
  count: number,
  options: { cap?: number; url?: (n: number) => string } = {},
): Promise<string[]> {
  const tenants = bench.names(`${group}-`, count);
  await seedEndpoints(
    bench.db,
    tenants.map((tenant, n) => ({
      tenant,
      url: options.url?.(n) ?? bench.receiver.url(group, n),
      ...(options.cap === undefined ? {} : { cap: options.cap }),
    })),
  );
  return tenants;
}

export interface Steady {
  rate: number;
  seconds: number;
  tenants: string[];
  bytes?: number;
  /** Default: warm up for a few seconds first. */
  warmUp?: boolean;
  /** How long to wait for what was sent, ms. */
  waitMs?: number;
}

export interface Phase {
  sent: Sent[];
  figures: Figures;
}

/** One stretch at a steady rate; resolves when all of it is delivered, or after `waitMs`. */
export async function steady(bench: Bench, to: Posthaste, what: Steady): Promise<Phase> {
  const { rate, seconds, tenants, bytes = 1_000, waitMs = 15_000 } = what;
  const publish = (duration: number) => bench.publish(to, { tenants, bytes, rate, seconds: duration });
  if (what.warmUp !== false) {
    await publish(WARM_UP_SECONDS);
    await bench.quiet(waitMs);
  }
  const { delivered: before } = await bench.receiver.counts();
  const from = await bench.snapshot();
  const published = await publish(seconds);
  await bench.receiver.reached(before + published.accepted, waitMs);
  await bench.quiet(waitMs);
  const cost = bench.costs(from, await bench.snapshot(), published.accepted);
  return {
    sent: published.sent,
    figures: {
      rate_per_s: rate,
      accepted_per_s: published.accepted / seconds,
      refused: published.refused,
      accept_p50_ms: published.p50,
      accept_p99_ms: published.p99,
      ...cost,
    },
  };
}

/** Latencies of a phase's events, lost and duplicates, all under a prefix. */
export function timings(sent: readonly Sent[], received: readonly Received[], prefix = ''): Figures {
  const { latency, lost, duplicates } = reconcile(sent, received);
  const times: Figures =
    latency === null
      ? {}
      : {
          [`${prefix}p50_ms`]: latency.p50,
          [`${prefix}p95_ms`]: latency.p95,
          [`${prefix}p99_ms`]: latency.p99,
          [`${prefix}max_ms`]: latency.max,
        };
  return { ...times, [`${prefix}lost`]: lost, [`${prefix}duplicates`]: duplicates };
}

/** Latencies of those events that were due within [from, to) ms of clock.ts. */
export function within(sent: readonly Sent[], from: number, to: number): Sent[] {
  return sent.filter(({ at }) => at !== null && at >= from && at < to);
}
