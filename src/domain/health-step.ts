/** One run of the reducer under way: its working copy and what it has decided so far. Used by health.ts and its parts. */
import type { Edge, EdgeKind, Fact, HealthState, HealthStep, Seen } from './health-types.ts';
import { busiestRate } from './health-window.ts';

export interface Step {
  readonly s: HealthState; // a copy, changed in place
  readonly seen: Seen;
  readonly frozen: boolean;
  readonly edges: Edge[];
  pauseUntilMs: number | null;
  resetFailsInRow: boolean;
  resetTokens: boolean;
  disable: HealthStep['disable'];
}

export function say(step: Step, kind: EdgeKind, reason: string, times: Partial<Edge> = {}): void {
  const { s, seen } = step;
  step.edges.push({
    kind,
    atMs: seen.nowMs,
    reason,
    lastStatus: s.lastStatus,
    lastClass: s.lastClass,
    sinceMs: s.clock.sinceMs,
    untilMs: null,
    held: seen.held,
    ...times,
  });
}

/** What `say` leaves out of good news: the last answer was a success, and an older failure would look like the last. */
export const WELL = { lastStatus: null, lastClass: null } as const;

/** Gated by probes. */
export const isGated = (s: HealthState): boolean =>
  s.health === 'open' || s.health === 'half_open' || s.health === 'misconfigured';

/** When the requests of a fact started, at the latest; its own time where the caller does not say. */
export const startOf = (fact: Fact): number => (fact.startedMs > 0 ? fact.startedMs : fact.atMs);

/** What the endpoint is sent, or lately took: the average lags 30 s behind a burst. */
export const rateOf = (s: HealthState, seen: Seen): number => Math.max(seen.sendRate, busiestRate(s.window));

/**
 * What an endpoint that returns is to reach: what it took before, or what comes in now. The average of an endpoint that
 * was new, or idle, when its trouble began says too little.
 */
export const neededRate = (s: HealthState, seen: Seen): number => Math.max(s.before, seen.arrivalRate ?? 0);

/** No result so far counts any more. */
export function forget(s: HealthState): void {
  s.window = [];
  s.run = { sinceMs: null, fails: 0, throttled: 0, deliveries: [] };
}
