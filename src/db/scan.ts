/** The scanner's statements (migrations/functions/scan.sql). All bounded, all safe to repeat. */
import type { Db } from './pool.ts';

export type Need = 'finish' | 'wake' | 'first' | 'retry' | 'held' | 'bulk';

export interface ScannedDelivery {
  delivery: string;
  generation: number;
  tenant: string;
  endpoint: string;
  event: string;
  event_type: string;
}

export async function scanDue(
  db: Db,
  shards: readonly number[],
  limit: number,
): Promise<{ need: Need; rows: number }[]> {
  const result = await db.query({
    name: 'scan_due',
    text: 'select need, rows from posthaste.scan_due($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

export async function scanLater(
  db: Db,
  shards: readonly number[],
  graceMs: number,
  limit: number,
): Promise<number> {
  const result = await db.query({
    name: 'scan_later',
    text: `select posthaste.scan_later($1, $2 * interval '1 millisecond', $3) as moved`,
    values: [shards, graceMs, limit],
  });
  return result.rows[0].moved;
}

/** Ends what needs no further attempt; `workflow`: one sleeps for it and should be told. */
export async function scanFinish(
  db: Db,
  shards: readonly number[],
  limit: number,
): Promise<{ delivery: string; workflow: boolean }[]> {
  const result = await db.query({
    name: 'scan_finish',
    text: 'select delivery, workflow from posthaste.scan_finish($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

export async function scanWake(db: Db, shards: readonly number[], limit: number): Promise<ScannedDelivery[]> {
  const result = await db.query({
    name: 'scan_wake',
    text: 'select * from posthaste.scan_wake($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

export async function scanAdopt(
  db: Db,
  shards: readonly number[],
  lanes: readonly string[],
  limit: number,
  aliveMs: number,
): Promise<ScannedDelivery[]> {
  const result = await db.query({
    name: 'scan_adopt',
    text: `select * from posthaste.scan_adopt($1, $2, $3, $4 * interval '1 millisecond')`,
    values: [shards, lanes, limit, aliveMs],
  });
  return result.rows;
}

export async function regroup(
  db: Db,
  shards: readonly number[],
  lane: string,
  dispatch: string,
  limit: number,
  aliveMs: number,
): Promise<number> {
  const result = await db.query({
    name: 'regroup',
    text: `select posthaste.regroup($1, $2, $3, $4, $5 * interval '1 millisecond') as members`,
    values: [shards, lane, dispatch, limit, aliveMs],
  });
  return result.rows[0].members;
}

export async function regroupHeld(
  db: Db,
  shards: readonly number[],
  sharedDispatch: string,
  dispatches: readonly string[],
  limit: number,
  aliveMs: number,
): Promise<{ id: string; members: number }[]> {
  const result = await db.query({
    name: 'regroup_held',
    text: `select id, members from posthaste.regroup_held($1, $2, $3, $4, $5 * interval '1 millisecond')`,
    values: [shards, sharedDispatch, dispatches, limit, aliveMs],
  });
  return result.rows;
}

/** Deliveries that have a workflow of their own, per living relay: what the living budget of a process counts. */
export async function countLiving(db: Db): Promise<number> {
  const result = await db.query({
    name: 'count_living',
    text: `select (select count(*) from posthaste.work where workflow)
        / greatest(1, (select count(distinct owner) from posthaste.shards where lease_until > clock_timestamp())) as living`,
  });
  return result.rows[0].living;
}
