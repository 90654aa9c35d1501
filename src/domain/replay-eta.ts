/** When a replay will have moved everything: what the API and the Web UI show. */

export interface ReplayFacts {
  readonly running: boolean;
  readonly total: number | null;
  readonly done: number; // matches dealt with
  readonly rate: number; // per second, allowed
  readonly createdAtMs: number;
}

/** Epoch ms, at the pace so far (before the first page: at the allowed one). Null: ended, or the total is unknown. */
export function replayEtaMs(facts: ReplayFacts, nowMs: number): number | null {
  if (!facts.running || facts.total === null) return null;
  const left = Math.max(0, facts.total - facts.done);
  const perMs =
    facts.done === 0 ? facts.rate / 1_000 : facts.done / Math.max(1_000, nowMs - facts.createdAtMs);
  return Math.round(nowMs + left / perMs);
}
