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
  plan: DeliveryPlan | null; // null: it has ended
}

/** What decides about an unfinished delivery's next attempt. */
export interface DeliveryPlan {
  step: number;
  burned: number;
  resume_at_ms: number | null;
  retry_policy: unknown; // of its endpoint, now
  timeout_ms: number;
  now_ms: number; // the database's
  endpoint: {
    state: 'active' | 'paused' | 'disabled' | 'deleted';
    mode: 'shared' | 'pump';
    health: 'closed' | 'open' | 'half_open' | 'recovering' | 'misconfigured';
    probe_at_ms: number | null; // null: never, or a probe is under way
    pause_until_ms: number | null;
  };
}

const WORK = `select w.delivery as id, w.endpoint, w.event, w.event_at, w.event_type, w.sequence, w.state, w.kind, null as reason, w.n,
  w.generation, w.last_status, w.last_class, w.created_at, w.due_at, w.deadline, null::timestamptz as finished_at, w.cancel_requested,
  (select jsonb_build_object('step', w.step, 'burned', w.burned, 'resume_at_ms', extract(epoch from w.resume_at) * 1000,
     'retry_policy', e.retry_policy, 'timeout_ms', e.timeout_ms, 'now_ms', extract(epoch from clock_timestamp()) * 1000,
     'endpoint', jsonb_build_object('state', e.state, 'mode', s.mode, 'health', s.health,
       'probe_at_ms', case when isfinite(s.probe_at) then extract(epoch from s.probe_at) * 1000 end,
       'pause_until_ms', case when isfinite(s.pause_until) then extract(epoch from s.pause_until) * 1000 end))
   from posthaste.endpoints e join posthaste.endpoint_state s on s.endpoint = e.id where e.id = w.endpoint) as plan
  from posthaste.work w`;
const ENDED = `select d.id, d.endpoint, d.event, d.event_at, d.event_type, d.sequence, d.state, d.kind, d.reason, d.n,
  d.generation, d.last_status, d.last_class, d.created_at, null::timestamptz as due_at, null::timestamptz as deadline, d.finished_at, false as cancel_requested,
  null::jsonb as plan
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
