/** Deliveries as people see them: unfinished ones live in work, ended ones in deliveries; every list reads both. */
import type { Db } from './pool.ts';

export interface DeliveryRow {
  id: string;
  endpoint: string;
  event: string;
  event_at: Date;
  event_type: string;
  sequence: number;
  state: 'ready' | 'sending' | 'retrying' | 'held' | 'delivered' | 'dead' | 'cancelled';
  kind: 'live' | 'replay' | 'test';
  reason: string | null;
  n: number;
  generation: number;
  last_status: number | null;
  last_class: string | null;
  created_at: Date;
  due_at: Date | null;
  deadline: Date | null;
  finished_at: Date | null;
  cancel_requested: boolean;
}

const WORK = `select w.delivery as id, w.endpoint, w.event, w.event_at, w.event_type, w.sequence, w.state, w.kind, null as reason, w.n,
  w.generation, w.last_status, w.last_class, w.created_at, w.due_at, w.deadline, null::timestamptz as finished_at, w.cancel_requested
  from posthaste.work w`;
const ENDED = `select d.id, d.endpoint, d.event, d.event_at, d.event_type, d.sequence, d.state, d.kind, d.reason, d.n,
  d.generation, d.last_status, d.last_class, d.created_at, null::timestamptz as due_at, null::timestamptz as deadline, d.finished_at, false as cancel_requested
  from posthaste.deliveries d`;

export interface DeliveryFilter {
  endpoint: string | null;
  event: string | null;
  type: string | null;
  state: string | null;
  status: number | null;
  class: string | null;
  kind: string | null; // null: all but tests
  sinceId: string | null; // ids carry their time: smallest id of `since`
  untilId: string | null;
  since: Date | null; // the same as a time, so that days are skipped
  until: Date | null;
}

const filters = (id: string, table: string) => `${table}.tenant = $1
  and ($2::text is null or ${table}.endpoint = $2)
  and ($3::text is null or ${table}.event = $3)
  and ($4::text is null or ${table}.event_type = $4)
  and ($5::text is null or ${table}.state = $5)
  and ($6::int is null or ${table}.last_status = $6)
  and ($7::text is null or ${table}.last_class = $7)
  and ($8::text is null or (${id} >= $8 and ${table}.created_at >= $9))
  and ($10::text is null or (${id} < $10 and ${table}.created_at < $11))
  and ($12::text is null or ${id} < $12)
  and case when $14::text is null then ${table}.kind <> 'test' else ${table}.kind = $14 end`;

/** Newest first, before the given id. Unnamed, so that it is planned for the filters that are set. */
export async function listDeliveries(
  db: Db,
  tenant: string,
  filter: DeliveryFilter,
  before: string | null,
  limit: number,
): Promise<DeliveryRow[]> {
  const result = await db.query({
    text: `select * from (
        (${WORK} where ${filters('w.delivery', 'w')} order by w.delivery desc limit $13)
        union all
        (${ENDED} where ${filters('d.id', 'd')} order by d.id desc limit $13)
      ) x order by id desc limit $13`,
    values: [
      tenant,
      filter.endpoint,
      filter.event,
      filter.type,
      filter.state,
      filter.status,
      filter.class,
      filter.sinceId,
      filter.since,
      filter.untilId,
      filter.until,
      before,
      limit,
      filter.kind,
    ],
  });
  return result.rows;
}

/** One delivery; `createdAt` is the time in its id. */
export async function getDelivery(
  db: Db,
  tenant: string,
  id: string,
  createdAt: Date,
): Promise<DeliveryRow | null> {
  const result = await db.query({
    name: 'get_delivery',
    text: `${WORK} where w.delivery = $1 and w.tenant = $2
      union all ${ENDED} where d.id = $1 and d.created_at = $3 and d.tenant = $2 limit 1`,
    values: [id, tenant, createdAt],
  });
  return result.rows[0] ?? null;
}

export interface DeadLetterRow {
  delivery: string;
  endpoint: string;
  event: string;
  event_at: Date;
  event_type: string;
  generation: number;
  reason: string;
  attempts: number;
  last_status: number | null;
  last_class: string | null;
  died_at: Date;
  position: string; // died_at to the microsecond, for the cursor
}

export interface DeadLetterFilter {
  endpoint: string | null;
  type: string | null;
  since: Date | null;
  until: Date | null;
}

/** Latest deaths first, after the position. */
export async function listDeadLetters(
  db: Db,
  tenant: string,
  filter: DeadLetterFilter,
  after: { at: string; delivery: string } | null,
  limit: number,
): Promise<DeadLetterRow[]> {
  const result = await db.query({
    text: `select x.delivery, x.endpoint, x.event, x.event_at, x.event_type, x.generation, x.reason, x.attempts, x.last_status,
        x.last_class, x.died_at, (extract(epoch from x.died_at) * 1000000)::bigint::text as position
      from posthaste.dead_letters x
      where x.tenant = $1
        and ($2::text is null or x.endpoint = $2)
        and ($3::text is null or x.event_type = $3)
        and ($4::timestamptz is null or x.died_at >= $4)
        and ($5::timestamptz is null or x.died_at < $5)
        and ($6::bigint is null or (x.died_at, x.delivery) < (timestamptz 'epoch' + $6 * interval '1 microsecond', $7))
      order by x.died_at desc, x.delivery desc limit $8`,
    values: [
      tenant,
      filter.endpoint,
      filter.type,
      filter.since,
      filter.until,
      after?.at ?? null,
      after?.delivery ?? null,
      limit,
    ],
  });
  return result.rows;
}
