/** Shard leases and the list of living processes. A lease carries an epoch; a statement of an old owner is refused. */
import type { Db } from './pool.ts';

export interface Lease {
  shard: number;
  epoch: number;
}

/** Says that this process lives, and answers how many processes with its role do. */
export async function heartbeat(db: Db, process: string, roles: string, ttlMs: number): Promise<number> {
  const result = await db.query({
    name: 'process_heartbeat',
    text: `with me as (
        insert into posthaste.processes (id, roles) values ($1, $2)
        on conflict (id) do update set seen_at = clock_timestamp()
      ), gone as (
        delete from posthaste.processes where seen_at < clock_timestamp() - interval '1 hour'
      )
      select 1 + count(*) as living from posthaste.processes p
      where p.id <> $1 and p.roles like '%relay%' and p.seen_at > clock_timestamp() - $3 * interval '1 millisecond'`,
    values: [process, roles, ttlMs],
  });
  return result.rows[0].living;
}

/** Extends the leases this process holds. Those missing in the answer are lost. */
export async function renewLeases(db: Db, process: string, ttlMs: number): Promise<Lease[]> {
  const result = await db.query({
    name: 'renew_leases',
    text: `update posthaste.shards set lease_until = clock_timestamp() + $2 * interval '1 millisecond'
      where owner = $1 and lease_until > clock_timestamp() returning shard, epoch`,
    values: [process, ttlMs],
  });
  return result.rows;
}

/** Takes up to `count` shards that nobody holds; each gets a new epoch. */
export async function acquireLeases(db: Db, process: string, ttlMs: number, count: number): Promise<Lease[]> {
  const result = await db.query({
    name: 'acquire_leases',
    text: `update posthaste.shards set owner = $1, epoch = epoch + 1, lease_until = clock_timestamp() + $2 * interval '1 millisecond'
      where shard in (
        select shard from posthaste.shards where lease_until <= clock_timestamp() order by shard limit $3 for update skip locked)
      returning shard, epoch`,
    values: [process, ttlMs, count],
  });
  return result.rows;
}

/** Gives shards up, at once for the next owner. */
export async function releaseLeases(db: Db, process: string, shards: readonly number[]): Promise<void> {
  await db.query({
    name: 'release_leases',
    text: `update posthaste.shards set owner = null, lease_until = '-infinity' where owner = $1 and shard = any ($2)`,
    values: [process, shards],
  });
}

/** Takes this process off the list of the living. */
export async function sayGoodbye(db: Db, process: string): Promise<void> {
  await db.query({
    name: 'process_goodbye',
    text: 'delete from posthaste.processes where id = $1',
    values: [process],
  });
}
