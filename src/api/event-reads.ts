/** Events, read: lists, one with its bytes and deliveries, and sending one again. */
import { z } from '@hono/zod-openapi';
import { listDeliveries } from '../db/deliveries.ts';
import { type EventRow, findEventTime, getEvent, listEvents } from '../db/events.ts';
import { type PassedOver, passedOver, resendEvent } from '../db/operators.ts';
import { idTimeMs } from '../domain/ids.ts';
import { Delivery, deliveryView, lowestId, NO_FILTER, Operated, operatedView } from './delivery-views.ts';
import type { ApiDeps } from './deps.ts';
import { noEvent } from './missing.ts';
import { ID_FORM, MS_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { eventType, page, pageOf, time, timestamp } from './schemas.ts';
import { requireTenant } from './tenants.ts';
import { bodyText } from './text.ts';
import { wakeAll } from './wake.ts';

const Event = z
  .object({
    id: z.string(),
    type: z.string(),
    created_at: timestamp,
    timestamp,
    version: z.string().nullable().openapi({ description: 'Decimal digits' }),
    raw: z.boolean(),
    content_type: z.string(),
    bytes: z.int(),
    test: z.boolean().openapi({ description: 'Of a test send: it went to one endpoint, once' }),
    sequence: z
      .int()
      .nullable()
      .openapi({ description: "Place in the tenant's order; null until the relay took it" }),
    deliveries: z
      .int()
      .nullable()
      .openapi({ description: 'How many endpoints it went to; null until the relay took it' }),
  })
  .openapi('Event');
const EventDetail = Event.omit({ deliveries: true })
  .extend({
    body: z
      .string()
      .openapi({ description: "The producer's bytes: `data` of a JSON event, else the raw body" }),
    body_encoding: z.enum(['text', 'base64']),
    deliveries: z.array(Delivery).openapi({ description: 'The newest 200' }),
  })
  .openapi('EventDetail');

const EMPTY = ['not_fanned_out', 'test_event', 'no_subscriber', 'endpoints_disabled'] as const;
const ResentEvent = z
  .object({
    data: z.array(Operated),
    skipped: z
      .array(
        z.object({
          endpoint: z.string(),
          delivery: z.string().nullable().openapi({ description: 'Of this event; null: it never had one' }),
          reason: z.enum(['endpoint_disabled', 'endpoint_deleted']),
        }),
      )
      .openapi({
        description:
          'Endpoints that subscribe or had a delivery, and take none; the first 200. Enable them and ask again, or `recover`',
      }),
    reason: z.enum(EMPTY).nullable().openapi({
      description:
        'Why `data` is empty; null: it is not. `not_fanned_out`: the relay has not taken the event yet, its deliveries come anyway. `test_event`: a test is never sent again. `no_subscriber`: no endpoint asks for its type. `endpoints_disabled`: all that do are disabled',
    }),
  })
  .openapi('ResentEvent');

const base = { tag: 'Events' } as const;
const path = '/v1/tenants/{tenant}/events';

export const eventReadSpecs = {
  list: route({
    ...base,
    method: 'get',
    path,
    id: 'listEvents',
    summary: 'List events, newest first',
    query: z.strictObject({
      ...PAGE,
      type: eventType.optional(),
      since: time.optional(),
      until: time.optional(),
      test: z
        .enum(['true', 'false'])
        .default('false')
        .transform((value) => value === 'true')
        .openapi({
          type: 'boolean',
          description: '`true`: the events of test sends, which are not listed else',
        }),
    }),
    status: 200,
    answer: 'A page of events',
    schema: page(Event),
    problems: ['cursor_invalid'],
  }),
  get: route({
    ...base,
    method: 'get',
    path: `${path}/{event}`,
    id: 'getEvent',
    summary: 'Show an event, its bytes and its deliveries',
    status: 200,
    answer: 'The event',
    schema: EventDetail,
  }),
  resend: route({
    ...base,
    method: 'post',
    path: `${path}/{event}/resend`,
    id: 'resendEvent',
    summary: 'Send an event again to all endpoints',
    description:
      'Ended deliveries start again, waiting ones are tried now, and endpoints that subscribe but were missed get one.',
    body: z.strictObject({}),
    bodyOptional: true,
    status: 202,
    answer: 'The deliveries concerned, and which endpoints were passed over and why',
    schema: ResentEvent,
    problems: ['endpoint_disabled', 'event_expired'],
  }),
};

export function eventReadRoutes(deps: ApiDeps): BoundRoute[] {
  const { db } = deps;
  return [
    bind(eventReadSpecs.list, async ({ param, query }) => {
      const tenant = param('tenant');
      const filter = {
        type: query.type ?? null,
        since: query.since ?? null,
        until: query.until ?? null,
        test: query.test,
      };
      const { after, cursor } = paging(query.cursor, 'events', [tenant, filter], [MS_FORM, ID_FORM]);
      const position = after === null ? null : { at: new Date(Number(after[0])), id: after[1] as string };
      await requireTenant(deps, tenant);
      const rows = await listEvents(db, tenant, filter, position, query.limit + 1);
      return {
        status: 200,
        json: pageOf(rows, query.limit, view, (last) => cursor([String(last.created_at.getTime()), last.id])),
      };
    }),
    bind(eventReadSpecs.get, async ({ param }) => {
      const tenant = param('tenant');
      const row = await getEvent(db, tenant, param('event'), timeOf(param('event')));
      if (row === null) return noEvent();
      // No delivery is older than its event; an hour covers clocks that disagree.
      const since = new Date(row.created_at.getTime() - 3_600_000);
      const kind = row.test ? 'test' : null;
      const filter = { ...NO_FILTER, event: row.id, kind, since, sinceId: lowestId(since) };
      const deliveries = await listDeliveries(db, tenant, filter, null, 200);
      const { deliveries: _, ...shown } = view(row);
      return {
        status: 200,
        json: { ...shown, ...bodyText(row.body), deliveries: deliveries.map(deliveryView) },
      };
    }),
    bind(eventReadSpecs.resend, async ({ param }) => {
      const tenant = param('tenant');
      const event = param('event');
      const at = await findEventTime(db, tenant, event, timeOf(event));
      if (at === null) return noEvent();
      const rows = await resendEvent(db, tenant, event, at);
      wakeAll(deps, rows);
      const passed = (await passedOver(db, tenant, event, at)) ?? noEvent();
      const { skipped } = passed;
      const reason = rows.length === 0 ? emptyReason(passed) : null;
      return { status: 202, json: { data: rows.map(operatedView), skipped, reason } };
    }),
  ];
}

function emptyReason({ fanned_out, test, skipped }: PassedOver): (typeof EMPTY)[number] {
  if (test) return 'test_event';
  if (!fanned_out) return 'not_fanned_out';
  return skipped.some(({ reason }) => reason === 'endpoint_disabled')
    ? 'endpoints_disabled'
    : 'no_subscriber';
}

function timeOf(event: string): Date | null {
  const ms = idTimeMs(event);
  return ms === null ? null : new Date(ms);
}

function view(row: EventRow) {
  return {
    id: row.id,
    type: row.type,
    created_at: row.created_at,
    timestamp: row.occurred_at,
    version: row.version,
    raw: row.raw,
    content_type: row.content_type,
    bytes: row.bytes,
    test: row.test,
    sequence: row.sequence,
    deliveries: row.deliveries,
  };
}
