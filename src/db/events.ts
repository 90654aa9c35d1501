/** Events as the API writes and reads them. Producers' own way in is the SQL function posthaste.enqueue. */
import { bools, byteas, texts, timestamps } from './arrays.ts';
import type { Db } from './pool.ts';

/** An event with an id, not yet written. `id` was made from `atMs`, or is the caller's own. */
export interface NewEvent {
  tenant: string;
  id: string;
  atMs: number;
  type: string;
  raw: boolean;
  contentType: string;
  version: string | null; // decimal digits
  occurredAtMs: number | null;
  body: Uint8Array;
}

/** The events column by column. */
export function columns(events: readonly NewEvent[]) {
  return {
    ids: texts(events.map((e) => e.id)),
    ats: timestamps(events.map((e) => e.atMs)),
    types: texts(events.map((e) => e.type)),
    raws: bools(events.map((e) => e.raw)),
    contentTypes: texts(events.map((e) => e.contentType)),
    // Versions may exceed 2^53, and moments may lie in any year: as text, when there are any.
    versions: allNull(events.map((e) => e.version)),
    occurred: allNull(
      events.map((e) => (e.occurredAtMs === null ? null : new Date(e.occurredAtMs).toISOString())),
    ),
    bodies: byteas(events.map((e) => e.body)),
  };
}

function allNull<T>(values: (T | null)[]): (T | null)[] | null {
  return values.every((value) => value === null) ? null : values;
}

/** Writes a group of events in one commit. Answers the ids that were written; those of unknown tenants are missing. */
export async function accept(db: Db, events: readonly NewEvent[]): Promise<Set<string>> {
  const c = columns(events);
  const result = await db.query({
    name: 'accept',
    text: 'select id from posthaste.accept($1, $2, $3, $4, $5, $6, $7, $8, $9)',
    values: [
      texts(events.map((e) => e.tenant)),
      c.ids,
      c.ats,
      c.types,
      c.raws,
      c.contentTypes,
      c.versions,
      c.occurred,
      c.bodies,
    ],
    rowMode: 'array',
  });
  return new Set(result.rows.map((row) => row[0] as string));
}

export interface EventRow {
  id: string;
  type: string;
  created_at: Date;
  occurred_at: Date;
  raw: boolean;
  content_type: string;
  version: string | null;
  bytes: number;
  test: boolean;
  sequence: number | null; // null: not fanned out yet
  deliveries: number | null;
}

const COLUMNS = `v.id, v.type, v.created_at, v.occurred_at, v.raw, v.content_type, v.version::text as version,
  octet_length(v.body) as bytes, v.test, f.sequence, f.deliveries`;
const FROM = `from posthaste.all_events v
  left join posthaste.event_fanouts f on f.tenant = v.tenant and f.event_at = v.created_at and f.event = v.id`;

export interface EventFilter {
  type: string | null;
  since: Date | null;
  until: Date | null; // exclusive
  test: boolean; // test sends, and nothing else
}

/** Newest first, after (before) the position. Unnamed, so that it is planned for the filters that are set. */
export async function listEvents(
  db: Db,
  tenant: string,
  filter: EventFilter,
  after: { at: Date; id: string } | null,
  limit: number,
): Promise<EventRow[]> {
  const result = await db.query({
    text: `select ${COLUMNS} ${FROM}
      where v.tenant = $1
        and ($2::text is null or v.type = $2)
        and ($3::timestamptz is null or v.created_at >= $3)
        and ($4::timestamptz is null or v.created_at < $4)
        and ($5::timestamptz is null or (v.created_at <= $5 and (v.created_at, v.id) < ($5, $6)))
        and v.test = $8
      order by v.created_at desc, v.id desc limit $7`,
    values: [
      tenant,
      filter.type,
      filter.since,
      filter.until,
      after?.at ?? null,
      after?.id ?? null,
      limit,
      filter.test,
    ],
  });
  return result.rows;
}

/** One event with its bytes. An own id is found through event_keys; a generated one carries its time. */
export async function getEvent(
  db: Db,
  tenant: string,
  id: string,
  idTime: Date | null,
): Promise<(EventRow & { body: Buffer }) | null> {
  const result = await db.query({
    name: 'get_event',
    text: `select ${COLUMNS}, v.body ${FROM}
      where v.tenant = $1 and v.id = $2
        and v.created_at in (select k.created_at from posthaste.event_keys k where k.tenant = $1 and k.id = $2 union all select $3::timestamptz)`,
    values: [tenant, id, idTime],
  });
  return result.rows[0] ?? null;
}

/** When the event was accepted, or null when there is none: what resendEvent needs to find it. */
export async function findEventTime(
  db: Db,
  tenant: string,
  id: string,
  idTime: Date | null,
): Promise<Date | null> {
  const result = await db.query({
    name: 'find_event_time',
    text: `select v.created_at from posthaste.all_events v
      where v.tenant = $1 and v.id = $2
        and v.created_at in (select k.created_at from posthaste.event_keys k where k.tenant = $1 and k.id = $2 union all select $3::timestamptz)
      limit 1`,
    values: [tenant, id, idTime],
  });
  return result.rows[0]?.created_at ?? null;
}
