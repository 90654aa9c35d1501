/**
 * The bound on unfinished first attempts: what has been fanned out but not yet attempted once. It keeps the backlog
 * in the outbox, where a row costs nothing, instead of in `work` and Temporal. Called by relay.ts.
 *
 * Counted from rows by the groups and single deliveries this process started: exact, whoever works on them, and
 * bounded by what is open. Held and retrying deliveries do not count.
 */
import { countUnfinished, livingDispatches } from '../db/dispatches.ts';
import type { Pool } from '../db/pool.ts';

export interface Bound {
  room(): number;
  roomOf(tenant: string): number;
  add(started: {
    dispatches: readonly string[];
    deliveries: readonly string[];
    perTenant: ReadonlyMap<string, number>;
  }): void;
  /** Counts again. */
  refresh(): Promise<void>;
  /** Starts from what lives in these shards (after a takeover). */
  adopt(shards: readonly number[]): Promise<void>;
  unfinished(): number;
}

/** @param onBegun told when first attempts of a group or delivery have been made, also by another process. */
export function createBound(
  db: Pool,
  limit: number,
  onBegun: (kind: 'dispatch' | 'delivery', id: string) => void,
): Bound {
  const perTenantLimit = Math.max(1, Math.floor(limit / 4));
  const dispatches = new Set<string>();
  const singles = new Set<string>();
  let perTenant = new Map<string, number>();
  let total = 0;
  let additions: { perTenant: Map<string, number>; total: number } = { perTenant: new Map(), total: 0 };

  return {
    room: () => limit - total,
    roomOf: (tenant) => perTenantLimit - (perTenant.get(tenant) ?? 0),
    unfinished: () => total,
    add(started) {
      for (const dispatch of started.dispatches) dispatches.add(dispatch);
      for (const delivery of started.deliveries) singles.add(delivery);
      for (const [tenant, count] of started.perTenant) {
        perTenant.set(tenant, (perTenant.get(tenant) ?? 0) + count);
        additions.perTenant.set(tenant, (additions.perTenant.get(tenant) ?? 0) + count);
        total += count;
        additions.total += count;
      }
    },
    async refresh() {
      if (total === 0 && dispatches.size === 0 && singles.size === 0) return;
      additions = { perTenant: new Map(), total: 0 };
      const known = { dispatches: [...dispatches], singles: [...singles] };
      const rows = await countUnfinished(db, known.dispatches, known.singles);
      const openDispatches = new Set(rows.map((row) => row.dispatch));
      const openSingles = new Set(rows.map((row) => row.delivery));
      for (const id of known.dispatches) {
        if (openDispatches.has(id)) continue;
        dispatches.delete(id);
        onBegun('dispatch', id);
      }
      for (const id of known.singles) {
        if (openSingles.has(id)) continue;
        singles.delete(id);
        onBegun('delivery', id);
      }
      // What was added while the count ran is not in it.
      const counted = new Map(additions.perTenant);
      let sum = additions.total;
      for (const row of rows) {
        counted.set(row.tenant, (counted.get(row.tenant) ?? 0) + row.rows);
        sum += row.rows;
      }
      perTenant = counted;
      total = sum;
    },
    async adopt(shards) {
      for (const dispatch of await livingDispatches(db, shards)) dispatches.add(dispatch);
      if (dispatches.size > 0) total = Math.max(total, 1); // makes the next refresh count
    },
  };
}
