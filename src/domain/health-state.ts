/** The reducer's memory: a fresh one, and one read back from JSON of this or an older release. Called by health.ts. */
import type { Fact, Health, HealthState, Seen } from './health-types.ts';
import { addSpread } from './health-window.ts';

const HEALTHS: readonly Health[] = ['closed', 'open', 'half_open', 'recovering', 'misconfigured'];

function blank(nowMs: number): HealthState {
  return {
    v: 1,
    health: 'closed',
    sinceMs: nowMs,
    steppedMs: nowMs,
    mode: 'shared',
    oks: 0,
    okCarry: 0,
    window: [],
    run: { sinceMs: null, fails: 0, throttled: 0, deliveries: [] },
    config: { sinceMs: null, count: 0 },
    k: 0,
    kSinceMs: nowMs,
    opens: 0,
    outageSinceMs: null,
    cause: null,
    probeAtMs: null,
    successes: 0,
    sparse: 0,
    before: 0,
    pace: null,
    liveSinceMs: null,
    keepPumpUntilMs: null,
    longPauseUntilMs: null,
    clock: { sinceMs: null, attempts: 0, noticed: 0, noticedMs: null },
    announced: false,
    editedMs: null,
    pausedSinceMs: null,
    lastStatus: null,
    lastClass: null,
  };
}

/**
 * For an endpoint that never failed before. What it took in the last minute is not known, so the send rate stands in:
 * without it, the first failures of a busy endpoint would look like all it ever answered.
 */
export function freshState(seen: Seen, facts: readonly Fact[]): HealthState {
  const state = blank(seen.nowMs);
  state.mode = seen.mode;
  state.oks = seen.oks;
  const reported = facts.reduce((sum, f) => sum + f.ok + f.fail + f.throttled + f.config + f.neutral, 0);
  const last = seen.lastSuccessAtMs;
  if (last !== null && seen.nowMs - last < 60_000) {
    // The facts' own results are in the rate as well: one result adds 1/30 to a rate of 30 s.
    const rate = Math.max(0, seen.sendRate - reported / 30);
    const oks = Math.min(seen.oks, rate * 60);
    state.window = addSpread([], oks, seen.nowMs - 60_000, last, seen.nowMs);
  }
  return state;
}

export const copyState = (state: HealthState): HealthState => JSON.parse(JSON.stringify(state));

type Shape = Record<string, unknown>;
const isShape = (value: unknown): value is Shape =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** `value` where it has the type of `like`, field by field; else `like`. null stands for a number that is not there. */
function merge<T>(like: T, value: unknown, path = ''): T {
  if (isShape(like)) {
    if (!isShape(value)) return like;
    const entries = Object.entries(like).map(([key, inner]) => [key, merge(inner, value[key], key)]);
    return Object.fromEntries(entries) as T;
  }
  if (like === null) {
    const text = path === 'lastClass' || path === 'cause';
    const fits = text ? typeof value === 'string' : typeof value === 'number' && Number.isFinite(value);
    return (fits ? value : null) as T;
  }
  if (Array.isArray(like)) return (Array.isArray(value) ? value : like) as T;
  return (typeof value === typeof like && !Number.isNaN(value) ? value : like) as T;
}

const PACE = {
  phase: 'percent' as const,
  rate: 1,
  target: 1,
  congested: 1,
  beta: 0.8,
  grownMs: 0,
  decreasedMs: 0,
  decreases: 0,
  taken: false,
  refusals: 0,
  recent: [],
  fadesMs: null,
};
const BUCKET = { startMs: 0, ok: 0, fail: 0, throttled: 0, all: 0, slow: 0 };

/**
 * The state as stored, or null when it is none: then the endpoint starts as one that never failed. Fields that are
 * missing or of another type get their initial value, so a state of an older release is read.
 */
export function parseHealthState(json: unknown): HealthState | null {
  if (!isShape(json) || !HEALTHS.includes(json.health as Health)) return null;
  const at = typeof json.steppedMs === 'number' ? json.steppedMs : Number(json.sinceMs) || 0;
  const state = merge(blank(at), json);
  state.v = 1;
  state.pace = isShape(json.pace) ? merge(PACE, json.pace) : null;
  state.window = state.window.filter(isShape).map((bucket) => merge(BUCKET, bucket));
  state.run.deliveries = state.run.deliveries.filter((id) => typeof id === 'string');
  const gated = ['open', 'half_open', 'misconfigured'].includes(state.health);
  // A gated endpoint without a time to probe would never come back.
  if (gated) {
    state.probeAtMs ??= at;
    state.cause ??= state.health === 'misconfigured' ? 'config' : 'failures';
  }
  return state;
}
