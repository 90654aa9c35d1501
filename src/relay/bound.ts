/**
 * The bound on unfinished first attempts: what has been fanned out but not yet attempted once. It keeps the backlog
 * in the outbox, where a row costs nothing, instead of in `work` and Temporal. Called by relay.ts.
 *
 * Counted by the groups and single deliveries this process started: from rows, so that it is exact whoever works on them
 * and bounded by what is open; but what this very process works on, or has only just started, it knows by itself. Held and
 * retrying deliveries do not count.
 */

import { countUnfinished, livingDispatches } from '../db/dispatches.ts';
import type { Pool } from '../db/pool.ts';

/** A group that was just started and that nobody works on here: so long all its members are taken to be open. */
const FRESH_MS = 100;

/** How far groups are that this process works on, if it works: src/activities/progress.ts. */
export interface GroupsHere {
  left(dispatch: string): ReadonlyMap<string, number> | undefined;
}

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
  progress: GroupsHere | null,
  onBegun: (kind: 'dispatch' | 'delivery', id: string) => void,
): Bound {
  const perTenantLimit = Math.max(1, Math.floor(limit / 4));
  const dispatches = new Map<string, { members: ReadonlyMap<string, number> | null; at: number }>();
  const singles = new Set<string>();
  let perTenant = new Map<string, number>();
  let total = 0;
  let additions: { perTenant: Map<string, number>; total: number } = { perTenant: new Map(), total: 0 };

  return {
    room: () => limit - total,
    roomOf: (tenant) => perTenantLimit - (perTenant.get(tenant) ?? 0),
    unfinished: () => total,
    add(started) {
      // Who is in which of several groups, only the rows say.
      const members =
        started.dispatches.length === 1 && started.deliveries.length === 0 ? started.perTenant : null;
      for (const dispatch of started.dispatches) dispatches.set(dispatch, { members, at: performance.now() });
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
      const known = { dispatches: [] as string[], singles: [...singles] };
      const here: (readonly [string, number])[] = [];
      for (const [id, started] of dispatches) {
        const left = progress?.left(id);
        if (left?.size === 0) {
          dispatches.delete(id);
          onBegun('dispatch', id);
        } else if (left !== undefined) {
          started.members = null;
          here.push(...left);
        } else if (
          progress !== null &&
          started.members !== null &&
          performance.now() - started.at < FRESH_MS
        ) {
          here.push(...started.members);
        } else {
          known.dispatches.push(id);
        }
      }
      const rows =
        known.dispatches.length + known.singles.length === 0
          ? []
          : await countUnfinished(db, known.dispatches, known.singles);
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
      for (const [tenant, left] of here) {
        counted.set(tenant, (counted.get(tenant) ?? 0) + left);
        sum += left;
      }
      perTenant = counted;
      total = sum;
    },
    async adopt(shards) {
      for (const dispatch of await livingDispatches(db, shards))
        dispatches.set(dispatch, { members: null, at: 0 });
      if (dispatches.size > 0) total = Math.max(total, 1); // makes the next refresh count
    },
  };
}
