/** One outage, from healthy traffic to the end of the backlog, and what an observer measured. */
import type { ReceiverPlan } from './receiver.ts';
import { type Policy, TICK_MS, World } from './world.ts';

export interface OutagePlan {
  readonly policy: Policy;
  readonly kind: 'shed' | 'collapse' | 'fragile';
  readonly load: number; // λ/C
  readonly outageMs: number;
  /** Excess is answered 429 with Retry-After: 1, else 503. */
  readonly says429: boolean;
  readonly seed: number;
  readonly horizonMs: number; // after the receiver is back
}

export interface Measured {
  readonly plan: OutagePlan;
  readonly backlog: number; // undelivered when the receiver came back
  readonly idealSeconds: number; // B / (C − λ)
  /** Until all of the backlog was delivered, from the receiver's return; null: not within the horizon. */
  readonly drainSeconds: number | null;
  readonly drain999Seconds: number | null; // until all but a thousandth
  readonly probeSeconds: number; // the cooldown in force when the receiver came back
  readonly closeSeconds: number | null; // until the breaker closed
  readonly peak: number; // most requests in a second after the return
  readonly mean: number; // requests per second from the close to the end of the drain
  readonly burst: number; // a second's requests as a multiple of the mean of the 10 s before or after
  readonly liveP95Seconds: number; // of events created after the return
  readonly wasted: number; // failed requests after the return
  readonly attempts: number; // requests in all
  readonly downSeconds: number; // crashes after the return
  readonly trips: number; // after the return
  readonly perSecond: readonly number[]; // requests, from the return on
}

export const CAPACITY = 100;
/** High enough that the rate, not the cap, is what is tested: 50 in flight at 80 ms are 600 requests/s. */
export const CAP = 50;
const HEALTHY_MS = 120_000;
const TIMEOUT_MS = 15_000;
/** After the drain, so that live events created during it are seen delivered. */
const AFTER_MS = 120_000;

function percentile(histogram: Uint32Array, share: number): number {
  const total = histogram.reduce((sum, count) => sum + count, 0);
  let seen = 0;
  for (let i = 0; i < histogram.length; i++) {
    seen += histogram[i]!;
    if (seen >= share * total) return (i * TICK_MS) / 1000;
  }
  return 0;
}

/** A second with fewer requests than this is no burst that hurts; at low rates chance alone doubles one. */
const BURST_LEAST = 0.8 * CAPACITY;

const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** A step up or down is none: the second is compared with the busier one of the ten before and the ten after. */
function burstOf(seconds: readonly number[]): number {
  let most = 0;
  for (let i = 0; i < seconds.length; i++) {
    const mean = Math.max(
      meanOf(seconds.slice(Math.max(0, i - 10), i)),
      meanOf(seconds.slice(i + 1, i + 11)),
    );
    if (seconds[i]! >= BURST_LEAST && mean > 0) most = Math.max(most, seconds[i]! / mean);
  }
  return most;
}

export function simulateOutage(plan: OutagePlan): Measured {
  const backMs = HEALTHY_MS + plan.outageMs;
  const endMs = backMs + plan.horizonMs;
  const receiver: ReceiverPlan = {
    kind: plan.kind,
    capacity: CAPACITY,
    refuses: plan.says429 ? 429 : 503,
    retryAfter: plan.says429 ? 1 : null,
    down: { fromMs: HEALTHY_MS, toMs: backMs },
    downBy: 'refusing',
  };
  const perSecond: number[] = [];
  const delays = new Uint32Array(plan.horizonMs / TICK_MS + 1);
  let [attempts, delivered, trips, probeMs, backlog, left] = [0, 0, 0, 0, 0, Number.POSITIVE_INFINITY];
  let closedMs: number | null = null;
  let drainedMs: number | null = null;
  let nearlyMs: number | null = null;
  let [sentBack, deliveredBack, createdBefore] = [0, 0, 0];
  const scenario = {
    policy: plan.policy,
    offered: CAPACITY * plan.load,
    receiver,
    cap: CAP,
    seed: plan.seed,
    timeoutMs: TIMEOUT_MS,
  };
  const world = new World(scenario, {
    sent(now) {
      attempts++;
      if (now < backMs) return;
      const second = Math.floor((now - backMs) / 1000);
      perSecond[second] = (perSecond[second] ?? 0) + 1;
      sentBack++;
    },
    delivered(created, now) {
      delivered++;
      if (now >= backMs) deliveredBack++;
      if (created >= backMs && (drainedMs === null || created <= drainedMs))
        delays[Math.min(delays.length - 1, (now - created) / TICK_MS)]!++;
      if (created >= backMs) return;
      left--;
      if (left <= backlog / 1000) nearlyMs ??= now;
      if (left === 0) drainedMs = now;
    },
    edge(kind, now) {
      if (kind === 'closed' && now >= backMs) closedMs ??= now;
      if (kind === 'opened' && now >= backMs) trips++;
    },
    cooldown(now, lengthMs) {
      if (now < backMs) probeMs = lengthMs;
    },
  });
  while (world.nowMs < endMs && (drainedMs === null || world.nowMs < drainedMs + AFTER_MS)) {
    if (world.nowMs === backMs) {
      // What was created and is not delivered, in whatever state.
      backlog = world.created - delivered;
      left = backlog;
      createdBefore = world.created;
    }
    world.tick();
  }
  // What is still waiting at the horizon has waited at least until then.
  if (drainedMs === null) {
    const delivered = delays.reduce((sum, count) => sum + count, 0);
    delays[delays.length - 1]! += world.created - createdBefore - delivered;
  }
  const end = drainedMs ?? endMs;
  const from = closedMs ?? backMs;
  const seconds = Array.from({ length: Math.ceil((end - backMs) / 1000) }, (_, i) => perSecond[i] ?? 0);
  const paced = seconds.slice(Math.floor((from - backMs) / 1000));
  return {
    plan,
    backlog,
    idealSeconds: backlog / (CAPACITY - scenario.offered),
    drainSeconds: drainedMs === null ? null : (drainedMs - backMs) / 1000,
    drain999Seconds: nearlyMs === null ? null : (nearlyMs - backMs) / 1000,
    probeSeconds: probeMs / 1000,
    closeSeconds: closedMs === null ? null : (closedMs - backMs) / 1000,
    peak: seconds.reduce((most, count) => Math.max(most, count), 0),
    mean: paced.reduce((sum, count) => sum + count, 0) / Math.max(1, paced.length),
    burst: burstOf(paced),
    liveP95Seconds: percentile(delays, 0.95),
    wasted: sentBack - deliveredBack,
    attempts,
    downSeconds: world.receiver.crashedMs / 1000,
    trips,
    perSecond: seconds,
  };
}

export interface Gates {
  readonly peak: boolean; // ≤ 1.25 C
  readonly peakToMean: boolean; // ≤ 1.5
  readonly drain: boolean; // ≤ 1.4 · B/(C − λ) + 2 probe intervals + 120 s
  readonly live: boolean; // p95 ≤ 2 probe intervals
  readonly down: boolean; // no extra downtime
}

export function drainLimit({ idealSeconds, probeSeconds }: Measured): number {
  return 1.4 * idealSeconds + 2 * probeSeconds + 120;
}

export function gatesOf(m: Measured): Gates {
  return {
    peak: m.peak <= 1.25 * CAPACITY,
    peakToMean: m.peak <= 1.5 * m.mean,
    drain: m.drainSeconds !== null && m.drainSeconds <= drainLimit(m),
    live: m.liveP95Seconds <= 2 * m.probeSeconds,
    down: m.downSeconds === 0,
  };
}
