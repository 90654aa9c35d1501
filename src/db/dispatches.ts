/** Groups: their lane, their lease on life, their end. */
import type { Db } from './pool.ts';

/** Says that the groups' activity lives. Answers those that still exist; the others were dissolved meanwhile. */
export async function renewDispatches(
  db: Db,
  dispatches: readonly string[],
  aliveMs: number,
): Promise<string[]> {
  const result = await db.query({
    name: 'renew_dispatches',
    text: `update posthaste.dispatches set alive_until = clock_timestamp() + $2 * interval '1 millisecond' where id = any ($1) returning id`,
    values: [dispatches, aliveMs],
  });
  return result.rows.map((row) => row.id);
}

/** Offers a group to dispatches that run in other processes. */
export async function offerDispatch(db: Db, dispatch: string): Promise<void> {
  await db.query({
    name: 'offer_dispatch',
    text: 'update posthaste.dispatches set offered = true where id = $1',
    values: [dispatch],
  });
}

/** Ends the offer. False when somebody has taken the group, or it is gone. */
export async function withdrawOffer(db: Db, dispatch: string): Promise<boolean> {
  const result = await db.query({
    name: 'withdraw_offer',
    text: 'update posthaste.dispatches set offered = false where id = $1 and offered',
    values: [dispatch],
  });
  return result.rowCount === 1;
}

/** Takes groups of a lane that are offered, the oldest first: they are the caller's to work on and to renew. */
export async function takeOffered(db: Db, lane: string, limit: number, aliveMs: number): Promise<string[]> {
  const result = await db.query({
    name: 'take_offered',
    text: `update posthaste.dispatches d set offered = false, alive_until = clock_timestamp() + $3 * interval '1 millisecond'
      from (select id from posthaste.dispatches where lane = $1 and offered order by id limit $2 for update skip locked) o
      where d.id = o.id returning d.id`,
    values: [lane, limit, aliveMs],
  });
  return result.rows.map((row) => row.id);
}

/** The endpoints of a group of pumps; none for a group of deliveries. */
export async function dispatchEndpoints(db: Db, dispatch: string): Promise<string[]> {
  const result = await db.query({
    name: 'dispatch_endpoints',
    text: 'select endpoints from posthaste.dispatches where id = $1',
    values: [dispatch],
  });
  return result.rows[0]?.endpoints ?? [];
}

/** Ends groups: by id, or (ids null) all of the shards past their alive_until. Members become rows alone. */
export async function dissolve(
  db: Db,
  shards: readonly number[],
  ids: readonly string[] | null,
  graceMs: number,
): Promise<{ id: string; members: number }[]> {
  const result = await db.query({
    name: 'dissolve',
    text: `select id, members from posthaste.dissolve($1, $2, $3 * interval '1 millisecond')`,
    values: [shards, ids, graceMs],
  });
  return result.rows;
}

/** First attempts not yet made, per group and tenant, of these groups and single deliveries. For the bound. */
export async function countUnfinished(
  db: Db,
  dispatches: readonly string[],
  singles: readonly string[],
): Promise<{ dispatch: string | null; delivery: string | null; tenant: string; rows: number }[]> {
  const result = await db.query({
    name: 'count_unfinished',
    text: `select w.dispatch, null as delivery, w.tenant, count(*) as rows from posthaste.work w
        where w.dispatch = any ($1) and w.lane = 'first' group by w.dispatch, w.tenant
      union all
      select null, w.delivery, w.tenant, 1 from posthaste.work w where w.delivery = any ($2) and w.lane = 'first'`,
    values: [dispatches, singles],
  });
  return result.rows;
}

/** Groups of these shards that still live: what a new shard owner starts from. */
export async function livingDispatches(db: Db, shards: readonly number[]): Promise<string[]> {
  const result = await db.query({
    name: 'living_dispatches',
    text: `select id from posthaste.dispatches where shard = any ($1) and lane = 'first' and alive_until > clock_timestamp()`,
    values: [shards],
  });
  return result.rows.map((row) => row.id);
}

/** The delivery's workflow is going away (cancelled in Temporal): the row waits alone from now on. */
export async function disown(db: Db, delivery: string): Promise<void> {
  await db.query({
    name: 'disown',
    text: `update posthaste.work set workflow = false, scans = 0,
        scan_at = case when state = 'sending' then claim_until + interval '15 seconds' else greatest(due_at, clock_timestamp()) end
      where delivery = $1 and workflow`,
    values: [delivery],
  });
}
