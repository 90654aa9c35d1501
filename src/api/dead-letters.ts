/** The list of dead letters: a page of JSON, or all of it as NDJSON when the client accepts that. */
import { z } from '@hono/zod-openapi';
import { type DeadLetterFilter, type DeadLetterRow, listDeadLetters } from '../db/deliveries.ts';
import type { ApiDeps } from './deps.ts';
import { ID_FORM, MICROS_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { eventType, id, page, pageOf, time, timestamp } from './schemas.ts';
import { requireTenant } from './tenants.ts';

const EXPORT_PAGE = 1_000;
const NDJSON = 'application/x-ndjson';

const DeadLetter = z
  .object({
    delivery: z.string(),
    event: z.string(),
    event_type: z.string(),
    endpoint: z.string(),
    reason: z.string(),
    generation: z.int(),
    attempts: z.int(),
    last_status: z.int().nullable(),
    last_class: z.string().nullable(),
    event_at: timestamp,
    died_at: timestamp,
  })
  .openapi('DeadLetter');

export const deadLetterSpecs = {
  list: route({
    tag: 'Dead letters',
    method: 'get',
    path: '/v1/tenants/{tenant}/dead-letters',
    id: 'listDeadLetters',
    summary: 'List dead letters, latest first',
    description: `With \`accept: ${NDJSON}\` all that match, one a line; \`limit\` and \`cursor\` then have no meaning.`,
    query: z.strictObject({
      ...PAGE,
      endpoint: id('ep').optional(),
      type: eventType.optional(),
      since: time.optional(),
      until: time.optional(),
    }),
    status: 200,
    answer: 'A page of dead letters',
    schema: page(DeadLetter),
    media: [NDJSON],
    problems: ['cursor_invalid'],
  }),
};

export function deadLetterRoutes(deps: ApiDeps): BoundRoute[] {
  return [
    bind(deadLetterSpecs.list, async ({ ctx, param, query }) => {
      const tenant = param('tenant');
      const filter = {
        endpoint: query.endpoint ?? null,
        type: query.type ?? null,
        since: query.since ?? null,
        until: query.until ?? null,
      };
      await requireTenant(deps, tenant);
      if ((ctx.req.header('accept') ?? '').toLowerCase().includes(NDJSON)) {
        const lines = exportAll(deps, tenant, filter);
        return { status: 200, raw: lines, headers: { 'content-type': NDJSON } };
      }
      const { after, cursor } = paging(
        query.cursor,
        'dead-letters',
        [tenant, filter],
        [MICROS_FORM, ID_FORM],
      );
      const position = after === null ? null : { at: after[0] as string, delivery: after[1] as string };
      const rows = await listDeadLetters(deps.db, tenant, filter, position, query.limit + 1);
      return {
        status: 200,
        json: pageOf(rows, query.limit, view, (last) => cursor([last.position, last.delivery])),
      };
    }),
  ];
}

/** Reads as fast as the client does. */
function exportAll(deps: ApiDeps, tenant: string, filter: DeadLetterFilter): ReadableStream<Uint8Array> {
  let after: { at: string; delivery: string } | null = null;
  return new ReadableStream({
    async pull(controller) {
      const rows: DeadLetterRow[] = await listDeadLetters(deps.db, tenant, filter, after, EXPORT_PAGE);
      const last = rows.at(-1);
      if (last !== undefined) {
        controller.enqueue(Buffer.from(rows.map((row) => `${JSON.stringify(view(row))}\n`).join('')));
        after = { at: last.position, delivery: last.delivery };
      }
      if (rows.length < EXPORT_PAGE) controller.close();
    },
  });
}

function view(row: DeadLetterRow) {
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
  };
}
