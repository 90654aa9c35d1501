/** What operators do to endpoints (migrations/functions/endpoints.sql). Each answers the state afterwards; null: none. */
import type { Db } from './pool.ts';

export type EndpointMove = 'pause' | 'resume' | 'enable' | 'disable' | 'delete';
export type EndpointState = 'active' | 'paused' | 'disabled' | 'deleted';

/** `tenant` null: of whichever it is (Temporal's side knows ids only). A move that does not apply changes nothing. */
export async function moveEndpoint(
  db: Db,
  tenant: string | null,
  endpoint: string,
  move: EndpointMove,
  reason: string | null = null,
): Promise<EndpointState | null> {
  const result = await db.query({
    name: 'move_endpoint',
    text: 'select posthaste.move_endpoint($1, $2, $3, $4) as state',
    values: [tenant, endpoint, move, reason],
  });
  return result.rows[0].state;
}

/**
 * When the oldest delivery was made that ended with the endpoint (or by the 410 before that), or is about to; null: none.
 */
export async function endedSince(db: Db, endpoint: string, disabledAt: Date): Promise<Date | null> {
  const result = await db.query({
    name: 'ended_since',
    text: `select least(
        (select min(w.created_at) from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
         where w.endpoint = $1 and w.queued_at <= e.cancel_before),
        (select min(d.created_at) from posthaste.deliveries d where d.endpoint = $1
         and d.finished_at >= $2::timestamptz - interval '1 minute' and d.reason in ('endpoint_disabled', 'gone'))) as oldest`,
    values: [endpoint, disabledAt],
  });
  return result.rows[0].oldest;
}
