/**
 * Which tenants have outbox rows, without losing, repeating or waiting. Called by relay.ts at every poll.
 *
 * A cursor (xid, seq) per shard moves upward over committed rows. An id cursor alone would lose rows that commit
 * late or out of order. Here a late row can only belong to a transaction that was in progress, with an xid at or
 * below the cursor, when the cursor passed: those xids are remembered and asked for by name until they have ended.
 * So every committed row is seen once, by the first poll after its commit, whatever other transactions do; nothing
 * waits for them. The cursor starts above deleted rows, so dead tuples that an old snapshot pins are not walked.
 *
 * Only tenants are kept in memory, not rows: a backlog of millions is a number per tenant. Losing this memory costs
 * one walk over the outbox, by whoever takes the shard over.
 */
import { discover, type Position } from '../db/outbox.ts';
import type { Pool } from '../db/pool.ts';

export interface WaitingTenant {
  tenant: string;
  shard: number;
  after: Position; // everything at or before this place has been taken
  waiting: number; // rows seen and not taken; a hint, never below 1
}

export interface Discovery {
  /** One statement; true when there may be more at once (a page was full). */
  poll(): Promise<boolean>;
  waiting(): ReadonlyMap<string, WaitingTenant>;
  /** A fan-out took `events` rows up to `last`; `asked` fewer than wanted means the tenant is drained. */
  took(tenant: string, events: number, last: Position | null, asked: number): void;
  setShards(shards: readonly number[]): void;
  /** Forgets the cursors: the next polls walk the whole outbox of these shards again. */
  rewind(): void;
}

const START: Position = { xid: '0', seq: 0 };

export function createDiscovery(db: Pool, pageSize = 5_000): Discovery {
  const cursors = new Map<number, Position>();
  const tenants = new Map<string, WaitingTenant>();
  let late: string[] = [];

  return {
    async poll() {
      if (cursors.size === 0) return false;
      const asked = [...cursors].map(([shard, position]) => ({ shard, position }));
      const found = await discover(db, asked, late, pageSize);
      const xmax = BigInt(found.xmax);
      let highest = 0n;
      for (const shard of found.shards) {
        // After a restore into a new cluster rows may carry xids from the future; the cursor never goes there.
        if (cursors.has(shard.shard) && BigInt(shard.xid) < xmax)
          cursors.set(shard.shard, { xid: shard.xid, seq: shard.seq });
      }
      for (const position of cursors.values())
        if (BigInt(position.xid) > highest) highest = BigInt(position.xid);
      late = found.xip.filter((xid) => BigInt(xid) <= highest);
      for (const row of found.tenants) {
        if (!cursors.has(row.shard)) continue;
        const before: Position = { xid: row.xid, seq: row.seq - 1 };
        const known = tenants.get(row.tenant);
        if (known === undefined) {
          tenants.set(row.tenant, {
            tenant: row.tenant,
            shard: row.shard,
            after: before,
            waiting: row.events,
          });
        } else {
          known.waiting += row.events;
          if (comparePositions(before, known.after) < 0) known.after = before;
        }
      }
      return found.shards.some((shard) => shard.rows >= pageSize);
    },
    waiting: () => tenants,
    took(tenant, events, last, asked) {
      const known = tenants.get(tenant);
      if (known === undefined) return;
      if (last !== null && comparePositions(last, known.after) > 0) known.after = last;
      known.waiting = Math.max(1, known.waiting - events);
      if (events < asked) tenants.delete(tenant);
    },
    setShards(shards) {
      for (const shard of cursors.keys()) if (!shards.includes(shard)) cursors.delete(shard);
      for (const shard of shards) if (!cursors.has(shard)) cursors.set(shard, START);
      for (const [tenant, known] of tenants) if (!cursors.has(known.shard)) tenants.delete(tenant);
    },
    rewind() {
      for (const shard of cursors.keys()) cursors.set(shard, START);
      tenants.clear();
    },
  };
}

export function comparePositions(a: Position, b: Position): number {
  const [ax, bx] = [BigInt(a.xid), BigInt(b.xid)];
  return ax === bx ? a.seq - b.seq : ax < bx ? -1 : 1;
}
