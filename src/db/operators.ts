/** What people do to deliveries (migrations/functions/operators.sql): resend and cancel, safe at any instant. */
import type { Db } from './pool.ts';

export interface Operated {
  delivery: string;
  state: string;
  generation: number;
  n: number;
}

/** Tries a delivery again now. Null: no such delivery of this tenant. SQLSTATE PHEND: its endpoint takes none; PHEXP: its event is gone. */
export async function resend(db: Db, tenant: string, delivery: string): Promise<Operated | null> {
  const result = await db.query({
    name: 'resend',
    text: 'select * from posthaste.resend($1, $2)',
    values: [tenant, delivery],
  });
  return result.rows[0] ?? null;
}

/** Cancels a delivery, at once or with the result of its attempt under way. Null: no such delivery. */
export async function cancel(db: Db, tenant: string, delivery: string): Promise<Operated | null> {
  const result = await db.query({
    name: 'cancel',
    text: 'select * from posthaste.cancel($1, $2)',
    values: [tenant, delivery],
  });
  return result.rows[0] ?? null;
}

/** Sends an event again to all its endpoints, and to subscribers it missed. */
export async function resendEvent(db: Db, tenant: string, event: string, eventAt: Date): Promise<Operated[]> {
  const result = await db.query({
    name: 'resend_event',
    text: 'select * from posthaste.resend_event($1, $2, $3)',
    values: [tenant, event, eventAt],
  });
  return result.rows;
}

/** What a resend of an event passes over, and why, as it stands now; at most 200 endpoints. */
export interface PassedOver {
  fanned_out: boolean;
  test: boolean; // a test send's: it is never sent again
  skipped: { endpoint: string; delivery: string | null; reason: 'endpoint_disabled' | 'endpoint_deleted' }[];
}

/** Disabled endpoints that subscribe to the event or had a delivery of it, and deleted ones that had. Null: no such event. */
export async function passedOver(
  db: Db,
  tenant: string,
  event: string,
  eventAt: Date,
): Promise<PassedOver | null> {
  const result = await db.query({
    name: 'passed_over',
    text: `with had as materialized (
        select w.endpoint, w.delivery from posthaste.work w
        where w.tenant = $1 and w.event = $2 and w.delivery > 'dlv_' || posthaste.id_time($3::timestamptz - interval '1 hour')
        union all
        select d.endpoint, d.id from posthaste.deliveries d where d.tenant = $1 and d.event = $2
      )
      select f.event is not null as fanned_out, v.test, (
        select coalesce(json_agg(x), '[]') from (
          select e.id as endpoint, h.delivery, 'endpoint_' || e.state as reason
          from posthaste.endpoints e left join had h on h.endpoint = e.id
          where e.tenant = $1 and not v.test and (e.state = 'disabled' and (h.delivery is not null or e.event_types is null or v.type = any (e.event_types))
            or e.state = 'deleted' and h.delivery is not null)
          order by e.id limit 200) x) as skipped
      from posthaste.all_events v
      left join posthaste.event_fanouts f on f.tenant = v.tenant and f.event_at = v.created_at and f.event = v.id
      where v.tenant = $1 and v.created_at = $3 and v.id = $2`,
    values: [tenant, event, eventAt],
  });
  return result.rows[0] ?? null;
}

/** The tenant of a delivery, unfinished or ended; null when there is none. For Temporal's side, which knows ids only. */
export async function tenantOf(db: Db, delivery: string, createdAt: Date): Promise<string | null> {
  const result = await db.query({
    name: 'tenant_of',
    text: `select tenant from posthaste.work where delivery = $1
      union all select tenant from posthaste.deliveries where id = $1 and created_at = $2 limit 1`,
    values: [delivery, createdAt],
  });
  return result.rows[0]?.tenant ?? null;
}
