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
