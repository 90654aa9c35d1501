/** The scanner's statements (migrations/functions/scan.sql). All bounded, all safe to repeat. */
import type { Db } from './pool.ts';

export type Need =
  | 'finish'
  | 'hold'
  | 'wake'
  | 'test'
  | 'later'
  | 'reap'
  | 'first'
  | 'retry'
  | 'held'
  | 'bulk';

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
  graceMs: number,
  limit: number,
): Promise<{ need: Need; rows: number }[]> {
  const result = await db.query({
    name: 'scan_due',
    text: `select need, rows from posthaste.scan_due($1, $2 * interval '1 millisecond', $3)`,
    values: [shards, graceMs, limit],
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

/** Test sends nobody has taken up yet. */
export async function scanTests(
  db: Db,
  shards: readonly number[],
  limit: number,
  aliveMs: number,
): Promise<ScannedDelivery[]> {
  const result = await db.query({
    name: 'scan_tests',
    text: `select * from posthaste.scan_tests($1, $2, $3 * interval '1 millisecond')`,
    values: [shards, limit, aliveMs],
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

/** Due rows of endpoints in mode pump become held. */
export async function scanHold(db: Db, shards: readonly number[], limit: number): Promise<void> {
  await db.query({ name: 'scan_hold', text: 'select posthaste.scan_hold($1, $2)', values: [shards, limit] });
}

export interface ScannedEndpoint {
  endpoint: string;
  tenant: string;
}

/** Endpoints that need a pump now and have none; each is promised to the caller for ten seconds. */
export async function scanPumps(
  db: Db,
  shards: readonly number[],
  limit: number,
): Promise<(ScannedEndpoint & { workflow: boolean })[]> {
  const result = await db.query({
    name: 'scan_pumps',
    text: 'select endpoint, tenant, workflow from posthaste.scan_pumps($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

/** Endpoints in mode pump without a workflow; they count as having one from now on. */
export async function adoptPumps(
  db: Db,
  shards: readonly number[],
  limit: number,
): Promise<ScannedEndpoint[]> {
  const result = await db.query({
    name: 'adopt_pumps',
    text: 'select endpoint, tenant from posthaste.adopt_pumps($1, $2)',
    values: [shards, limit],
  });
  return result.rows;
}

export async function groupPumps(
  db: Db,
  dispatch: string,
  endpoints: readonly string[],
  aliveMs: number,
): Promise<void> {
  await db.query({
    name: 'group_pumps',
    text: `select posthaste.group_pumps($1, $2, $3 * interval '1 millisecond')`,
    values: [dispatch, endpoints, aliveMs],
  });
}

/** Endpoints that count as having a workflow and need none any more. */
export async function scanDisown(db: Db, shards: readonly number[]): Promise<void> {
  await db.query({ name: 'scan_disown', text: 'select posthaste.scan_disown($1)', values: [shards] });
}

/** Endpoints with a workflow, per living relay. */
export async function countLivingEndpoints(db: Db): Promise<number> {
  const result = await db.query({
    name: 'count_living_endpoints',
    text: `select (select count(*) from posthaste.endpoint_health where workflow)
        / greatest(1, (select count(distinct owner) from posthaste.shards where lease_until > clock_timestamp())) as living`,
  });
  return result.rows[0].living;
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
