/** Requests and events that carry a key: the grouped way in (migrations/functions/accept.sql), and the clean-up of old keys. */
import { bools, byteas, int4s, texts } from './arrays.ts';
import { columns, type NewEvent } from './events.ts';
import type { Db } from './pool.ts';

export interface KeyedRequest {
  tenant: string;
  key: string | null;
  hash: Buffer | null; // of the whole request; with a key only
  events: readonly (NewEvent & { own: boolean })[];
}

export interface KeyedAnswer {
  event: number; // index over all events of all requests, from 1
  outcome: 'accepted' | 'duplicate' | 'conflict' | 'replayed' | 'reused' | 'again' | 'no_tenant';
  id: string;
  at: Date;
  response: { id: string; at: number }[] | null;
}

/** SQLSTATEs: 55P03 someone holds a key longer than lockMs; PHDUP (atomic) with the conflicting indexes as detail. */
export async function acceptKeyed(
  db: Db,
  requests: readonly KeyedRequest[],
  options: { lockMs: number; atomic: boolean },
): Promise<KeyedAnswer[]> {
  const events = requests.flatMap((request) => request.events);
  const c = columns(events);
  const result = await db.query({
    name: 'accept_keyed',
    text: `select event, outcome, id, at, response
      from posthaste.accept_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
    values: [
      options.lockMs,
      options.atomic,
      texts(requests.map((r) => r.tenant)),
      texts(requests.map((r) => r.key)),
      byteas(requests.map((r) => r.hash)),
      int4s(requests.flatMap((r, index) => r.events.map(() => index + 1))),
      c.ids,
      bools(events.map((e) => e.own)),
      c.ats,
      c.types,
      c.raws,
      c.contentTypes,
      c.versions,
      c.occurred,
      c.bodies,
    ],
  });
  return result.rows;
}

/** Forgets idempotency keys older than two days, 10,000 a call. Answers how many went. */
export async function purgeIdempotencyKeys(db: Db): Promise<number> {
  const result = await db.query({
    name: 'purge_idempotency_keys',
    text: `delete from posthaste.idempotency_keys where (tenant, key) in (
      select tenant, key from posthaste.idempotency_keys where created_at < now() - interval '2 days'
      order by created_at limit 10000 for update skip locked)`,
  });
  return result.rowCount ?? 0;
}
