/**
 * How many requests this process has under way, and how many it may: fewer when its event loop lags, because a
 * process that can't run its timers can't keep its deadlines. One gate per process, shared by all groups.
 */
export interface Gate {
  free(): number;
  enter(): void;
  leave(): void;
  inFlight(): number;
  lagMs(): number;
  close(): void;
}

const LAG_LIMIT_MS = 200;
const TICK_MS = 100;

export function createGate(limit: number): Gate {
  let inFlight = 0;
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
    enter: () => void inFlight++,
    leave: () => void inFlight--,
    inFlight: () => inFlight,
    lagMs: () => lag,
    close: () => clearInterval(timer),
  };
}
