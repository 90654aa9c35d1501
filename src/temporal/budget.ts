/**
 * The start budget of a process: how many workflows it may start or signal per second, by class. Workflow starts are
 * the dearest thing Posthaste does (25-70/s on two cores), so whatever is ready when single starts run out goes out
 * in groups. Called by src/relay and the activities; `now` is passed in, in milliseconds.
 *
 * Two controls. Few starts may be outstanding (started, first attempt not begun), so that no queue can form in Temporal
 * however slow it is: what would queue there waits in the outbox and makes groups larger. Within that, rates adapt to
 * the measured time from start to first attempt. Groups of first attempts keep a floor that nothing can take.
 */
/**
 * `retry`: a workflow of its own for a delivery that was attempted before; it can wait in its row. `wake`: one whose workflow
 * is late, or lost.
 */
export const START_CLASSES = ['group', 'endpoint', 'retryGroup', 'wake', 'retry', 'single'] as const;
export type StartClass = (typeof START_CLASSES)[number];

/** Outstanding starts below which a class may start: singles give way first, groups of first attempts last. */
const OUTSTANDING: Record<StartClass, number> = {
  single: 4,
  retry: 4,
  wake: 4,
  endpoint: 4,
  retryGroup: 5,
  group: 6,
};
/** With POSTHASTE_GROUPING=never nothing else can be done with what is ready: only the outstanding are limited. */
export const NEVER_OUTSTANDING = 20;
const GROUP_FLOOR = 8; // per second
/** More groups a second shorten waits by milliseconds, and what Temporal spends on them is missing when something fails. */
const GROUP_MOST = 10;
/**
 * Failed deliveries that get a workflow of their own per second. A handful that fail together are to be seen one by one; where
 * receivers fail for many, each start would take what a hundred first attempts need, and they wait in their rows.
 */
const RETRIES = 1;
const RETRY_BURST = 10;
const RATE_MIN = 12;
const RATE_MAX = 40;
const SLOW_MS = 250;
const QUICK_MS = 80;
const BURST_SECONDS = 0.5;
/** After so long without a measured start the rate goes back to where it began, by 1 a second. */
const SILENT_MS = 2_000;

export interface StartBudget {
  /** Takes one token of the class; false when there is none, or too much is outstanding. */
  take(kind: StartClass, now: number): boolean;
  /** How many of the class may start right now. */
  available(kind: StartClass, now: number): number;
  /** Milliseconds until a token of the class exists. */
  waitMs(kind: StartClass, now: number): number;
  /** A start took this long until its first attempt began. */
  observe(latencyMs: number, now: number): void;
  rate(): number;
}

/** @param outstanding starts whose first attempt has not begun, now. */
export function createStartBudget(start: number, outstanding: () => number, initialRate = 30): StartBudget {
  let rate = initialRate;
  let adjustedAt = start;
  let worst = 0;
  let seen = 0;
  const buckets = new Map<StartClass, { tokens: number; at: number }>();
  for (const kind of START_CLASSES)
    buckets.set(kind, { tokens: kind === 'retry' ? RETRY_BURST : 1, at: start });

  const share = (kind: StartClass): number => {
    const rest = rate - GROUP_FLOOR;
    if (kind === 'group') return Math.min(GROUP_MOST, Math.max(GROUP_FLOOR, rate / 2));
    if (kind === 'endpoint') return Math.max(1, rest / 8); // a group pumps as well; this is to be seen
    if (kind === 'retryGroup') return Math.max(1, rest / 4);
    if (kind === 'wake') return Math.max(2, rest / 6);
    if (kind === 'retry') return RETRIES;
    return Math.max(0.5, rest);
  };
  /** Silence says nothing against Temporal: without this a rate that overload cut would stay low for ever. */
  const recover = (now: number): void => {
    const silent = now - adjustedAt - SILENT_MS;
    if (silent <= 0 || rate >= initialRate) return;
    rate = Math.min(initialRate, rate + silent / 1_000);
    adjustedAt = now - SILENT_MS;
  };
  // Singles may save up a little, so that a short burst is still one workflow each. Groups of the scanner save up what
  // the second between two scans brings; groups of first attempts are asked for all the time.
  const burst: Record<StartClass, number> = {
    single: BURST_SECONDS,
    wake: 2,
    retry: RETRY_BURST, // a handful that fail together are still to be seen one by one
    endpoint: 1,
    retryGroup: 1,
    group: 0.25,
  };
  const refill = (kind: StartClass, now: number): { tokens: number; at: number } => {
    recover(now);
    const bucket = buckets.get(kind)!;
    const perSecond = share(kind);
    const most = Math.max(1, perSecond * burst[kind]);
    bucket.tokens = Math.min(most, bucket.tokens + (Math.max(0, now - bucket.at) / 1_000) * perSecond);
    bucket.at = Math.max(now, bucket.at);
    return bucket;
  };

  return {
    take(kind, now) {
      const bucket = refill(kind, now);
      if (bucket.tokens < 1 || outstanding() >= OUTSTANDING[kind]) return false;
      bucket.tokens -= 1;
      return true;
    },
    available: (kind, now) =>
      Math.max(0, Math.min(Math.floor(refill(kind, now).tokens), OUTSTANDING[kind] - outstanding())),
    waitMs(kind, now) {
      const bucket = refill(kind, now);
      if (outstanding() >= OUTSTANDING[kind]) return 20;
      return bucket.tokens >= 1 ? 0 : Math.ceil(((1 - bucket.tokens) / share(kind)) * 1_000);
    },
    observe(latencyMs, now) {
      worst = Math.max(worst, latencyMs);
      seen++;
      if (now - adjustedAt < 1_000) return;
      if (worst > SLOW_MS) rate = Math.max(RATE_MIN, rate * 0.8);
      else if (worst < QUICK_MS && seen > 2) rate = Math.min(RATE_MAX, rate + 1);
      adjustedAt = now;
      worst = 0;
      seen = 0;
    },
    rate: () => rate,
  };
}
