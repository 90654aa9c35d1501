/** How an endpoint stands, for people: its workflow (src/workflows/endpoint.ts), the API, the dashboard. */

/** How an endpoint stands. Times are RFC 3339. */
export interface EndpointReport {
  /** `shared`: anyone with a claim sends; `pump`: it can't keep up, or rests, and one pump sends. */
  mode: 'shared' | 'pump';
  state: 'active' | 'paused' | 'disabled' | 'deleted';
  health: 'closed' | 'open' | 'half_open' | 'recovering' | 'misconfigured';
  since: string;
  nextProbeAt: string | null;
  pausedUntil: string | null;
  /** Deliveries that wait for the endpoint, counted to 10,000. */
  held: number;
  /** Requests per second that it may be sent; null: no limit but its cap. */
  rate: number | null;
  /** When the backlog will be gone at this rate; null: unknown. */
  caughtUpAt: string | null;
  /** Epoch ms of the next look; null: when woken. */
  lookAgainMs: number | null;
}

/** The row it is told from (src/db/health.ts). */
export interface EndpointFacts {
  state: EndpointReport['state'];
  mode: EndpointReport['mode'];
  mode_since: Date;
  health: EndpointReport['health'];
  memory: unknown; // endpoint_health.state
  probe_at: Date | number | null; // PostgreSQL's infinities are numbers
  pause_until: Date | number;
  rate: number | null;
  rate_limit: number | null;
  send_rate: number;
  held: number;
}

const GONE: EndpointReport = {
  mode: 'shared',
  state: 'deleted',
  health: 'closed',
  since: new Date(0).toISOString(),
  nextProbeAt: null,
  pausedUntil: null,
  held: 0,
  rate: null,
  caughtUpAt: null,
  lookAgainMs: null,
};

/** @param run how the last run of the pump ended; null: nobody pumps here. */
export function reportOf(
  row: EndpointFacts | null,
  run: { status: string; until: Date | null } | null,
  nowMs: number,
): EndpointReport {
  if (row === null) return GONE;
  const rate = least(row.rate, row.rate_limit);
  const spare = rate === null ? null : rate - Math.min(rate, arrivals(row));
  const pausedUntil = timeOf(row.pause_until);
  const probeAt = timeOf(row.probe_at);
  return {
    mode: row.mode,
    state: row.state,
    health: row.health,
    since: sinceOf(row).toISOString(),
    nextProbeAt: probeAt?.toISOString() ?? null,
    pausedUntil: pausedUntil !== null && pausedUntil.getTime() > nowMs ? pausedUntil.toISOString() : null,
    held: row.held,
    rate,
    caughtUpAt:
      spare === null ||
      spare <= 0 ||
      row.held === 0 ||
      row.health === 'open' ||
      row.state !== 'active' ||
      (pausedUntil !== null && pausedUntil.getTime() > nowMs)
        ? null
        : new Date(nowMs + (row.held / spare) * 1_000).toISOString(),
    lookAgainMs: row.state === 'active' && run !== null ? (run.until?.getTime() ?? null) : null,
  };
}

function least(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.min(a, b);
}

/** The rate at which new deliveries come, as far as health remembers it. */
function arrivals(row: EndpointFacts): number {
  const memory = row.memory as { health?: { before?: unknown } } | null;
  return typeof memory?.health?.before === 'number' ? memory.health.before : 0;
}

function sinceOf(row: EndpointFacts): Date {
  const memory = row.memory as { health?: { sinceMs?: unknown } } | null;
  const since = memory?.health?.sinceMs;
  return row.health !== 'closed' && typeof since === 'number' ? new Date(since) : row.mode_since;
}

/** PostgreSQL's infinities come as numbers. */
function timeOf(value: Date | number | null): Date | null {
  return value instanceof Date ? value : null;
}
