/** Finding outbox rows and fanning them out. The rules are in src/relay/discovery.ts and migrations/functions/fan_out.sql. */
import type { Db } from './pool.ts';

/** A place in the outbox: the writing transaction's id and the row's number. xid8 travels as text. */
export interface Position {
  xid: string;
  seq: number;
}

export interface Found {
  xmax: string; // of the snapshot this was read under
  xip: string[]; // transactions in progress in it
  shards: { shard: number; rows: number; xid: string; seq: number }[]; // last row read per shard
  tenants: { shard: number; tenant: string; events: number; xid: string; seq: number }[]; // first row per tenant
}

/** Rows after each shard's cursor (at most `limit` a shard), and rows of the transactions in `late`. One snapshot. */
export async function discover(
  db: Db,
  cursors: readonly { shard: number; position: Position }[],
  late: readonly string[],
  limit: number,
): Promise<Found> {
  const result = await db.query({
    name: 'discover',
    text: `with fresh as materialized (
        select l.shard, o.tenant, o.xid, o.seq
        from unnest($1::int[], $2::text[], $3::bigint[]) l (shard, xid, seq)
        cross join lateral (
          select o.tenant, o.xid, o.seq from posthaste.outbox o
          where o.shard = l.shard and (o.xid, o.seq) > (l.xid::xid8, l.seq)
          order by o.xid, o.seq limit $5
        ) o
      ), late as (
        select o.shard, o.tenant, o.xid, o.seq from posthaste.outbox o
        where o.shard = any ($1) and o.xid = any ($4::text[]::xid8[])
      ), snap as (
        select pg_current_snapshot() as s
      ), every as (
        select * from fresh union select * from late
      )
      select pg_snapshot_xmax(s)::text as xmax,
        (select coalesce(json_agg(x::text), '[]') from pg_snapshot_xip(s) x) as xip,
        (select coalesce(json_agg(f), '[]') from (
          select distinct on (shard) shard, count(*) over (partition by shard) as rows, xid::text, seq from fresh order by shard, fresh.xid desc, seq desc) f) as shards,
        (select coalesce(json_agg(f), '[]') from (
          select distinct on (tenant) shard, tenant, count(*) over (partition by tenant) as events, xid::text, seq from every order by tenant, every.xid, seq) f) as tenants
      from snap`,
    values: [
      cursors.map((c) => c.shard),
      cursors.map((c) => c.position.xid),
      cursors.map((c) => c.position.seq),
      late,
      limit,
    ],
  });
  return result.rows[0];
}

export interface FanOutAsk {
  leases: readonly { shard: number; epoch: number }[];
  tenants: readonly { tenant: string; after: Position; limit: number; room: number }[];
  dispatch: string;
  singles: number;
  aliveMs: number;
}

export interface FannedOut {
  /** `lim`: how many events could have been taken; fewer taken means that no more wait. */
  tenants: { tenant: string; lim: number; events: number; deliveries: number; xid: string; seq: number }[];
  dispatches: { id: string; members: number }[];
  deliveries: StartedDelivery[];
}

export interface StartedDelivery {
  delivery: string;
  tenant: string;
  endpoint: string;
  event: string;
  event_type: string;
}

/** Takes events and makes their deliveries. Throws SQLSTATE PHFEN when a lease was lost: nothing happened then. */
export async function fanOut(db: Db, ask: FanOutAsk): Promise<FannedOut> {
  const result = await db.query({
    name: 'fan_out',
    text: `select tenants, dispatches, deliveries from posthaste.fan_out($1, $2, $3, $4, $5, $6, $7, $8, $9, $10 * interval '1 millisecond')`,
    values: [
      ask.leases.map((l) => l.shard),
      ask.leases.map((l) => l.epoch),
      ask.tenants.map((t) => t.tenant),
      ask.tenants.map((t) => t.after.xid),
      ask.tenants.map((t) => t.after.seq),
      ask.tenants.map((t) => t.limit),
      ask.tenants.map((t) => Math.max(1, Math.floor(t.room))),
      ask.dispatch,
      ask.singles,
      ask.aliveMs,
    ],
  });
  const row = result.rows[0];
  return { tenants: row.tenants ?? [], dispatches: row.dispatches ?? [], deliveries: row.deliveries ?? [] };
}

/** Age of the oldest waiting event in milliseconds, 0 when none waits. For metrics; reads one row per shard. */
export async function oldestAgeMs(db: Db, shards: readonly number[]): Promise<number> {
  const result = await db.query({
    name: 'outbox_age',
    text: `select coalesce(max(extract(epoch from clock_timestamp() - o.event_at) * 1000), 0)::float8 as age
      from unnest($1::int[]) s (shard) cross join lateral (
        select event_at from posthaste.outbox o where o.shard = s.shard order by o.xid, o.seq limit 1) o`,
    values: [shards],
  });
  return result.rows[0].age;
}
