/** Events that come from Temporal: inserted as a producer would, then followed until the relay has fanned them out. */
import type { Db } from './pool.ts';

export interface EnqueuedEvent {
  tenant: string;
  type: string;
  json: string; // kept as text
  id: string;
  version: string | null;
  timestamp: string | null;
}

/** One event in a transaction of its own. SQLSTATEs as in migrations/0002_outbox.sql; the same again changes nothing. */
export async function enqueueEvent(db: Db, event: EnqueuedEvent): Promise<void> {
  await db.query({
    name: 'enqueue_event',
    text: 'select posthaste.enqueue($1, $2, $3::json, $4, $5::bigint, $6::timestamptz)',
    values: [event.tenant, event.type, event.json, event.id, event.version, event.timestamp],
  });
}

/**
 * The deliveries of an event, in the order they were made, none when nobody subscribed; null: it has not been fanned out.
 * A test send's event never is: it is made with its one delivery.
 */
export async function fannedOut(
  db: Db,
  tenant: string,
  event: string,
  eventAt: Date,
): Promise<string[] | null> {
  const result = await db.query({
    name: 'fanned_out',
    text: `select array(
        select w.delivery from posthaste.work w
        where w.tenant = $1 and w.event = $2 and w.delivery > 'dlv_' || posthaste.id_time($3::timestamptz - interval '1 hour')
        union
        select d.id from posthaste.deliveries d
        where d.tenant = $1 and d.event = $2 and d.created_at > $3::timestamptz - interval '1 hour'
        order by 1) as deliveries
      from posthaste.all_events v
      left join posthaste.event_fanouts f on f.tenant = v.tenant and f.event_at = v.created_at and f.event = v.id
      where v.tenant = $1 and v.created_at = $3 and v.id = $2 and (f.event is not null or v.test)`,
    values: [tenant, event, eventAt],
  });
  return result.rows[0]?.deliveries ?? null;
}
