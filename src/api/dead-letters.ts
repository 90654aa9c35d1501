/** Dead letters: a page of JSON, all of them as NDJSON when the client accepts that, or how many there are. */
import { z } from '@hono/zod-openapi';
import {
  countDeadLetters,
  type DeadLetterFilter,
  type DeadLetterPosition,
  type DeadLetterRow,
  type DeadLetterWithBody,
  listDeadLetters,
  listDeadLettersWithBodies,
} from '../db/dead-letters.ts';
import { DEAD_REASONS } from '../domain/decide.ts';
import type { ApiDeps } from './deps.ts';
import { DELIVERY_FILTERS } from './filters.ts';
import { ID_FORM, MICROS_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { page, pageOf, timestamp } from './schemas.ts';
import { sentBody } from './sent-body.ts';
import { requireTenant } from './tenants.ts';
import { bodyText } from './text.ts';

const EXPORT_PAGE = 1_000;
/** Bodies may be large: so many are in memory at a time. */
const BODIES_PAGE = 20;
const MAX_GROUPS = 1_000;
const NDJSON = 'application/x-ndjson';

const DeadLetter = z
  .object({
    delivery: z.string(),
    event: z.string(),
    event_type: z.string(),
    endpoint: z.string(),
    reason: z.enum(DEAD_REASONS),
    generation: z.int(),
    attempts: z.int(),
    last_status: z.int().nullable(),
    last_class: z.string().nullable(),
    event_at: timestamp,
    died_at: timestamp,
    content_type: z.string().optional().openapi({ description: 'With `include=body`, as the next two' }),
    body: z.string().optional().openapi({ description: 'Exactly what each attempt sent and a resend sends' }),
    body_encoding: z.enum(['text', 'base64']).optional(),
  })
  .openapi('DeadLetter');

const DeadLetterCounts = z
  .object({
    total: z.int(),
    groups: z
      .array(
        z.object({
          endpoint: z.string(),
          reason: z.enum(DEAD_REASONS),
          count: z.int(),
          first_died_at: timestamp,
          last_died_at: timestamp,
        }),
      )
      .openapi({ description: `Most first; ${MAX_GROUPS} at most` }),
  })
  .openapi('DeadLetterCounts');

const filters = { ...DELIVERY_FILTERS, reason: z.enum(DEAD_REASONS).optional() };
const base = { tag: 'Dead letters', method: 'get', status: 200 } as const;
const path = '/v1/tenants/{tenant}/dead-letters';

export const deadLetterSpecs = {
  list: route({
    ...base,
    path,
    id: 'listDeadLetters',
    summary: 'List dead letters, latest first',
    description: `\`since\` and \`until\` are about the time of death. With \`accept: ${NDJSON}\` all that match, one a line; \`limit\` and \`cursor\` then have no meaning. With \`include=body\` a page has ${BODIES_PAGE} at most. A dead letter and its body are kept until it is resent, whatever the retention.`,
    query: z.strictObject({ ...PAGE, ...filters, include: z.literal('body').optional() }),
    answer: 'A page of dead letters',
    schema: page(DeadLetter),
    media: [NDJSON],
    problems: ['cursor_invalid'],
  }),
  count: route({
    ...base,
    path: `${path}/count`,
    id: 'countDeadLetters',
    summary: 'Count dead letters by endpoint and reason',
    description: 'Exact, with the filters of the list.',
    query: z.strictObject(filters),
    answer: 'How many there are',
    schema: DeadLetterCounts,
  }),
};

interface Asked {
  filter: DeadLetterFilter;
  bodies: boolean;
}

export function deadLetterRoutes(deps: ApiDeps): BoundRoute[] {
  return [
    bind(deadLetterSpecs.list, async ({ ctx, param, query }) => {
      const tenant = param('tenant');
      const asked: Asked = { filter: filterOf(query), bodies: query.include === 'body' };
      await requireTenant(deps, tenant);
      if ((ctx.req.header('accept') ?? '').toLowerCase().includes(NDJSON)) {
        const lines = exportAll(deps, tenant, asked);
        return { status: 200, raw: lines, headers: { 'content-type': NDJSON } };
      }
      const forms = [MICROS_FORM, ID_FORM];
      const { after, cursor } = paging(query.cursor, 'dead-letters', [tenant, asked.filter], forms);
      const position = after === null ? null : { at: after[0] as string, delivery: after[1] as string };
      const limit = asked.bodies ? Math.min(query.limit, BODIES_PAGE) : query.limit;
      const rows = await read(deps, tenant, asked, position, limit + 1);
      return {
        status: 200,
        json: pageOf(rows, limit, view, (last) => cursor([last.position, last.delivery])),
      };
    }),
    bind(deadLetterSpecs.count, async ({ param, query }) => {
      const tenant = param('tenant');
      await requireTenant(deps, tenant);
      const rows = await countDeadLetters(deps.db, tenant, filterOf(query), MAX_GROUPS);
      const groups = rows.map(({ total: _, letters, ...group }) => ({ ...group, count: letters }));
      return { status: 200, json: { total: rows[0]?.total ?? 0, groups } };
    }),
  ];
}

function filterOf(
  query: { [K in keyof DeadLetterFilter]?: DeadLetterFilter[K] | undefined },
): DeadLetterFilter {
  return {
    endpoint: query.endpoint ?? null,
    type: query.type ?? null,
    reason: query.reason ?? null,
    status: query.status ?? null,
    class: query.class ?? null,
    event: query.event ?? null,
    since: query.since ?? null,
    until: query.until ?? null,
  };
}

type Row = DeadLetterRow | DeadLetterWithBody;

function read(
  deps: ApiDeps,
  tenant: string,
  { filter, bodies }: Asked,
  after: DeadLetterPosition | null,
  limit: number,
): Promise<Row[]> {
  return bodies
    ? listDeadLettersWithBodies(deps.db, tenant, filter, after, limit)
    : listDeadLetters(deps.db, tenant, filter, after, limit);
}

/** Reads as fast as the client does. */
function exportAll(deps: ApiDeps, tenant: string, asked: Asked): ReadableStream<Uint8Array> {
  const size = asked.bodies ? BODIES_PAGE : EXPORT_PAGE;
  let after: DeadLetterPosition | null = null;
  return new ReadableStream({
    async pull(controller) {
      const rows: Row[] = await read(deps, tenant, asked, after, size);
      const last = rows.at(-1);
      if (last !== undefined) {
        controller.enqueue(Buffer.from(rows.map((row) => `${JSON.stringify(view(row))}\n`).join('')));
        after = { at: last.position, delivery: last.delivery };
      }
      if (rows.length < size) controller.close();
    },
  });
}

function view(row: Row) {
  return {
    delivery: row.delivery,
    event: row.event,
    event_type: row.event_type,
    endpoint: row.endpoint,
    reason: row.reason,
    generation: row.generation,
    attempts: row.attempts,
    last_status: row.last_status,
    last_class: row.last_class,
    event_at: row.event_at,
    died_at: row.died_at,
    ...('body' in row ? bodyOf(row) : {}),
  };
}

function bodyOf(row: DeadLetterWithBody) {
  if (row.body === null) return {};
  const event = { ...row, id: row.event, type: row.event_type, body: row.body };
  return { content_type: row.content_type, ...bodyText(sentBody(event, row.sequence)) };
}
