/**
 * How many requests this process has under way, and how many it may: fewer when its event loop lags, because a
 * process that can't run its timers can't keep its deadlines. One gate per process, shared by all groups.
 */
export interface Gate {
  free(): number;
  /** Room for one tenant: half of the gate at most, so that nobody's hanging receivers fill it alone. */
  freeFor(tenant: string): number;
  enter(tenant: string): void;
  leave(tenant: string): void;
  inFlight(): number;
  lagMs(): number;
  close(): void;
}

const LAG_LIMIT_MS = 200;
const TICK_MS = 100;

export function createGate(limit: number): Gate {
  let inFlight = 0;
  const perTenant = new Map<string, number>();
  let allowed = limit;
  let lag = 0;
  let expected = performance.now() + TICK_MS;
  const timer = setInterval(() => {
    const now = performance.now();
    lag = Math.max(0, now - expected);
    expected = now + TICK_MS;
    allowed =
      lag > LAG_LIMIT_MS ? Math.max(8, Math.floor(allowed / 2)) : Math.min(limit, Math.ceil(allowed * 1.1));
  }, TICK_MS);
  timer.unref();
  return {
    free: () => Math.max(0, allowed - inFlight),
    freeFor: (tenant) => Math.max(0, Math.ceil(allowed / 2) - (perTenant.get(tenant) ?? 0)),
    enter(tenant) {
      inFlight++;
      perTenant.set(tenant, (perTenant.get(tenant) ?? 0) + 1);
    },
    leave(tenant) {
      inFlight--;
      const left = (perTenant.get(tenant) ?? 1) - 1;
      if (left > 0) perTenant.set(tenant, left);
      else perTenant.delete(tenant);
    },
    inFlight: () => inFlight,
    lagMs: () => lag,
    close: () => clearInterval(timer),
  };
}
