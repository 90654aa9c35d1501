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
