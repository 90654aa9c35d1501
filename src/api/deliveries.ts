/** Deliveries, their attempts, and what people do to them. */
import { z } from '@hono/zod-openapi';
import { listAttempts } from '../db/attempts.ts';
import { type DeliveryRow, getDelivery, listDeliveries } from '../db/deliveries.ts';
import { getEvent } from '../db/events.ts';
import { cancel, type Operated as OperatedRow, resend } from '../db/operators.ts';
import { idTimeMs } from '../domain/ids.ts';
import {
  Attempt,
  attemptView,
  Delivery,
  deliveryView,
  KINDS,
  lowestId,
  Operated,
  operatedView,
  STATES,
} from './delivery-views.ts';
import type { ApiDeps } from './deps.ts';
import { DELIVERY_FILTERS } from './filters.ts';
import { noDelivery } from './missing.ts';
import { ID_FORM, NUMBER_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { page, pageOf } from './schemas.ts';
import { sentBody } from './sent-body.ts';
import { requireTenant } from './tenants.ts';
import { wakeAll } from './wake.ts';

const base = { tag: 'Deliveries' } as const;
const path = '/v1/tenants/{tenant}/deliveries';
const Nothing = z.strictObject({});

export const deliverySpecs = {
  list: route({
    ...base,
    method: 'get',
    path,
    id: 'listDeliveries',
    summary: 'List deliveries, newest first',
    query: z.strictObject({
      ...PAGE,
      ...DELIVERY_FILTERS,
      state: z.enum(STATES).optional(),
      kind: z.enum(KINDS).optional().openapi({ description: 'Default: all but `test`' }),
    }),
    status: 200,
    answer: 'A page of deliveries',
    schema: page(Delivery),
    problems: ['cursor_invalid'],
  }),
  get: route({
    ...base,
    method: 'get',
    path: `${path}/{delivery}`,
    id: 'getDelivery',
    summary: 'Show a delivery',
    status: 200,
    answer: 'The delivery',
    schema: Delivery,
  }),
  attempts: route({
    ...base,
    method: 'get',
    path: `${path}/{delivery}/attempts`,
    id: 'listAttempts',
    summary: 'List the attempts of a delivery, as sent and received',
    query: z.strictObject(PAGE),
    status: 200,
    answer: 'A page of attempts, first to last',
    schema: page(Attempt),
    problems: ['cursor_invalid'],
  }),
  resend: route({
    ...base,
    method: 'post',
    path: `${path}/{delivery}/resend`,
    id: 'resendDelivery',
    summary: 'Try a delivery again now',
    description:
      'An ended delivery starts again with a new schedule; a waiting one is tried now and keeps its schedule.',
    body: Nothing,
    bodyOptional: true,
    status: 202,
    answer: 'How it stands',
    schema: Operated,
    problems: ['endpoint_disabled', 'event_expired', 'test_delivery'],
  }),
  cancel: route({
    ...base,
    method: 'post',
    path: `${path}/{delivery}/cancel`,
    id: 'cancelDelivery',
    summary: 'Cancel a delivery',
    description:
      'An attempt under way is awaited: a 2xx still counts as delivered. An ended delivery stays as it is.',
    body: Nothing,
    bodyOptional: true,
    status: 200,
    answer: 'How it stands',
    schema: Operated,
  }),
};

export function deliveryRoutes(deps: ApiDeps): BoundRoute[] {
  const { db } = deps;

  const find = async (tenant: string, delivery: string): Promise<DeliveryRow> => {
    const row = await getDelivery(db, tenant, delivery, new Date(idTimeMs(delivery) ?? 0));
    return row ?? noDelivery();
  };

  return [
    bind(deliverySpecs.list, async ({ param, query }) => {
      const tenant = param('tenant');
      const { limit, cursor: given, ...asked } = query;
      const { after, cursor } = paging(given, 'deliveries', [tenant, asked], [ID_FORM]);
      const filter = {
        endpoint: asked.endpoint ?? null,
        event: asked.event ?? null,
        type: asked.type ?? null,
        state: asked.state ?? null,
        status: asked.status ?? null,
        class: asked.class ?? null,
        kind: asked.kind ?? null,
        since: asked.since ?? null,
        until: asked.until ?? null,
        sinceId: asked.since === undefined ? null : lowestId(asked.since),
        untilId: asked.until === undefined ? null : lowestId(asked.until),
      };
      await requireTenant(deps, tenant);
      const rows = await listDeliveries(db, tenant, filter, after?.[0] ?? null, limit + 1);
      return { status: 200, json: pageOf(rows, limit, deliveryView, (last) => cursor([last.id])) };
    }),
    bind(deliverySpecs.get, async ({ param }) => ({
      status: 200,
      json: deliveryView(await find(param('tenant'), param('delivery'))),
    })),
    bind(deliverySpecs.attempts, async ({ param, query }) => {
      const tenant = param('tenant');
      const delivery = await find(tenant, param('delivery'));
      const { after, cursor } = paging(query.cursor, 'attempts', [tenant, delivery.id], [NUMBER_FORM]);
      const from = after === null ? 0 : Number(after[0]);
      const rows = await listAttempts(db, tenant, delivery.id, delivery.created_at, from, query.limit + 1);
      const sent = await sentBytes(deps, tenant, delivery);
      return {
        status: 200,
        json: pageOf(
          rows,
          query.limit,
          (row) => attemptView(row, sent),
          (last) => cursor([String(last.n)]),
        ),
      };
    }),
    bind(deliverySpecs.resend, async ({ param }) => {
      const row = (await resend(db, param('tenant'), param('delivery'))) ?? noDelivery();
      wakeAll(deps, [row]);
      return { status: 202, json: operatedView(row) };
    }),
    bind(deliverySpecs.cancel, async ({ param }) => {
      const row: OperatedRow = (await cancel(db, param('tenant'), param('delivery'))) ?? noDelivery();
      wakeAll(deps, [row]);
      return { status: 200, json: operatedView(row) };
    }),
  ];
}

/** The body every attempt of the delivery sends; null when the event is no longer kept. */
export async function sentBytes(
  deps: ApiDeps,
  tenant: string,
  delivery: DeliveryRow,
): Promise<Buffer | null> {
  const event = await getEvent(deps.db, tenant, delivery.event, delivery.event_at);
  return event === null ? null : sentBody(event, delivery.sequence);
}
