/**
 * Which shards this process looks after. Leases last 6 s and are renewed every 2 s; a dead owner's shards are taken
 * over within 8 s; a stopping owner gives them up at once. Shares are even over the living relays. Called by relay.ts.
 */
import type { Pool } from '../db/pool.ts';
import {
  acquireLeases,
  heartbeat,
  type Lease,
  releaseLeases,
  renewLeases,
  sayGoodbye,
} from '../db/shards.ts';

export const SHARD_COUNT = 16;
const LEASE_MS = 6_000;
export const RENEW_MS = 2_000;

export interface Leases {
  held(): readonly Lease[];
  /** Renews, and takes or gives up shards. Answers whether the set changed. */
  tick(): Promise<boolean>;
  /** False when the leases may have run out unrenewed: nothing may be done under them. */
  valid(): boolean;
  release(): Promise<void>;
}

export function createLeases(db: Pool, process: string, roles: string): Leases {
  let held: Lease[] = [];
  let renewedAt = Number.NEGATIVE_INFINITY;
  const key = (leases: readonly Lease[]): string =>
    leases
      .map((l) => `${l.shard}/${l.epoch}`)
      .sort()
      .join();

  return {
    held: () => held,
    valid: () => performance.now() - renewedAt < LEASE_MS - 1_000,
    async tick() {
      const before = key(held);
      const startedAt = performance.now();
      const relays = await heartbeat(db, process, roles, 3 * RENEW_MS + 1_000);
      held = await renewLeases(db, process, LEASE_MS);
      const share = Math.ceil(SHARD_COUNT / Math.max(1, relays));
      if (held.length < share)
        held = [...held, ...(await acquireLeases(db, process, LEASE_MS, share - held.length))];
      else if (held.length > share) {
        const surplus = held.slice(share);
        held = held.slice(0, share);
        await releaseLeases(
          db,
          process,
          surplus.map((lease) => lease.shard),
        );
      }
      renewedAt = startedAt;
      return key(held) !== before;
    },
    async release() {
      const shards = held.map((lease) => lease.shard);
      held = [];
      await releaseLeases(db, process, shards);
      await sayGoodbye(db, process);
    },
  };
}
