/** Dead letters as people see them. Rows are written and taken away by the verbs (migrations/functions). */
import type { Db } from './pool.ts';

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

/** With what its request body is made of. */
export interface DeadLetterWithBody extends DeadLetterRow {
  sequence: number;
  raw: boolean;
  content_type: string;
  version: string | null;
  occurred_at: Date;
  body: Buffer | null; // the producer's bytes; null, and all of these: they are gone, which retention prevents
}

export interface DeadLetterFilter {
  endpoint: string | null;
  type: string | null;
  reason: string | null;
  status: number | null;
  class: string | null;
  event: string | null;
  since: Date | null;
  until: Date | null; // exclusive
}

const FILTER = `x.tenant = $1
  and ($2::text is null or x.endpoint = $2)
  and ($3::text is null or x.event_type = $3)
  and ($4::text is null or x.reason = $4)
  and ($5::int is null or x.last_status = $5)
  and ($6::text is null or x.last_class = $6)
  and ($7::text is null or x.event = $7)
  and ($8::timestamptz is null or x.died_at >= $8)
  and ($9::timestamptz is null or x.died_at < $9)`;

const filterValues = (tenant: string, filter: DeadLetterFilter) => [
  tenant,
  filter.endpoint,
  filter.type,
  filter.reason,
  filter.status,
  filter.class,
  filter.event,
  filter.since,
  filter.until,
];

const COLUMNS = `x.delivery, x.endpoint, x.event, x.event_at, x.event_type, x.generation, x.reason, x.attempts, x.last_status,
  x.last_class, x.died_at, (extract(epoch from x.died_at) * 1000000)::bigint::text as position`;
const PAGE = `($10::bigint is null or (x.died_at, x.delivery) < (timestamptz 'epoch' + $10 * interval '1 microsecond', $11))
  order by x.died_at desc, x.delivery desc limit $12`;

export interface DeadLetterPosition {
  at: string;
  delivery: string;
}

/** Latest deaths first, after the position. Unnamed, so that it is planned for the filters that are set. */
export async function listDeadLetters(
  db: Db,
  tenant: string,
  filter: DeadLetterFilter,
  after: DeadLetterPosition | null,
  limit: number,
): Promise<DeadLetterRow[]> {
  const result = await db.query({
    text: `select ${COLUMNS} from posthaste.dead_letters x where ${FILTER} and ${PAGE}`,
    values: [...filterValues(tenant, filter), after?.at ?? null, after?.delivery ?? null, limit],
  });
  return result.rows;
}

/** The same with what their bodies are made of; those outlive the event's retention. */
export async function listDeadLettersWithBodies(
  db: Db,
  tenant: string,
  filter: DeadLetterFilter,
  after: DeadLetterPosition | null,
  limit: number,
): Promise<DeadLetterWithBody[]> {
  const result = await db.query({
    text: `select y.*, d.sequence, v.raw, v.content_type, v.version::text as version, v.occurred_at, v.body
      from (select ${COLUMNS}, x.tenant from posthaste.dead_letters x where ${FILTER} and ${PAGE}) y
      left join posthaste.deliveries d on d.id = y.delivery and d.created_at = posthaste.id_at(y.delivery)
      left join posthaste.all_events v on v.tenant = y.tenant and v.created_at = y.event_at and v.id = y.event
      order by y.died_at desc, y.delivery desc`,
    values: [...filterValues(tenant, filter), after?.at ?? null, after?.delivery ?? null, limit],
  });
  return result.rows;
}

export interface DeadLetterCount {
  endpoint: string;
  reason: string;
  letters: number;
  first_died_at: Date;
  last_died_at: Date;
  total: number; // of all groups, also those beyond the limit
}

/** How many there are by endpoint and reason, most first. Exact: reads the tenant's rows of the filter. */
export async function countDeadLetters(
  db: Db,
  tenant: string,
  filter: DeadLetterFilter,
  limit: number,
): Promise<DeadLetterCount[]> {
  const result = await db.query({
    text: `select x.endpoint, x.reason, count(*) as letters, min(x.died_at) as first_died_at, max(x.died_at) as last_died_at,
        (sum(count(*)) over ())::bigint as total
      from posthaste.dead_letters x where ${FILTER} group by x.endpoint, x.reason order by letters desc, x.endpoint, x.reason limit $10`,
    values: [...filterValues(tenant, filter), limit],
  });
  return result.rows;
}
