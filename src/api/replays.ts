/**
 * Replays: what sends many deliveries again, or cancels them. A request makes a row; the scanner starts its workflow,
 * which pages (docs/adr/0004-replay.md). So each of these answers at once, whatever it matches.
 */
import { z } from '@hono/zod-openapi';
import { getEndpoint } from '../db/endpoints.ts';
import { cancelReplay, getReplay, insertReplay, listReplays, type NewReplay } from '../db/replays.ts';
import { fieldProblem, ProblemError } from '../errors.ts';
import { newId } from '../ids.ts';
import { classes, STATES } from './delivery-views.ts';
import type { ApiDeps } from './deps.ts';
import { noEndpoint, noReplay, noTenant } from './missing.ts';
import { ID_FORM, paging } from './paging.ts';
import { Replay, replayView } from './replay-views.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { eventType, id, page, pageOf, time } from './schemas.ts';
import { requireTenant } from './tenants.ts';

const base = { tag: 'Replays', schema: Replay } as const;
const path = '/v1/tenants/{tenant}';
const accepted = {
  status: 202,
  answer: 'The replay, to be watched and cancelled',
  problems: ['endpoint_disabled'],
} as const;

const rate = z
  .int()
  .min(1)
  .max(1_000)
  .default(50)
  .openapi({ description: 'At most so many deliveries a second' });
const WAITING = ['ready', 'sending', 'retrying', 'held'] as const;
const RESENT = ['retrying', 'held', 'dead', 'cancelled'] as const;

const oneOrMore = <T extends string>(values: readonly [T, ...T[]]) => {
  const value = z.enum(values);
  return z.union([value, z.array(value).min(1).max(values.length)]);
};
const filterOf = <T extends string>(states: readonly [T, ...T[]]) =>
  z.strictObject({
    endpoint: id('ep').optional(),
    event: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be an event id')
      .optional(),
    type: eventType.optional(),
    state: oneOrMore(states).optional(),
    status: z.int().min(100).max(999).optional().openapi({ description: 'Of the last attempt' }),
    class: z.enum(classes).optional().openapi({ description: 'Of the last attempt' }),
    since: time.optional(),
    until: time.optional(),
  });

export const replaySpecs = {
  resend: route({
    ...base,
    ...accepted,
    method: 'post',
    path: `${path}/deliveries/resend`,
    id: 'resendDeliveries',
    summary: 'Try again every delivery that matches',
    description:
      'As one resend each. Without `state`: retrying, held, dead and cancelled ones; delivered ones only when named. `since` and `until` are of the delivery.',
    body: z.strictObject({ filter: filterOf(STATES), rate }),
  }),
  cancel: route({
    ...base,
    ...accepted,
    problems: [],
    method: 'post',
    path: `${path}/deliveries/cancel`,
    id: 'cancelDeliveries',
    summary: 'Cancel every unfinished delivery that matches',
    body: z.strictObject({ filter: filterOf(WAITING) }),
  }),
  deadLetters: route({
    ...base,
    ...accepted,
    method: 'post',
    path: `${path}/dead-letters/replay`,
    id: 'replayDeadLetters',
    summary: 'Send again every dead letter that matches',
    description: '`since` and `until` are of the death, as in the list.',
    body: z.strictObject({
      filter: z.strictObject({
        endpoint: id('ep').optional(),
        type: eventType.optional(),
        since: time.optional(),
        until: time.optional(),
      }),
      rate,
    }),
  }),
  recover: route({
    ...base,
    ...accepted,
    method: 'post',
    path: `${path}/endpoints/{endpoint}/recover`,
    id: 'recoverEndpoint',
    summary: 'Send again what an endpoint did not take in a range of time',
    description:
      'Dead and cancelled deliveries made in the range, or those in `states`. With `missed` also events of the range that it subscribes to now and never got: published while it was disabled, or before it existed.',
    body: z.strictObject({
      since: time,
      until: time.optional(),
      states: z.array(z.enum(STATES)).min(1).max(STATES.length).default(['dead', 'cancelled']),
      missed: z.boolean().default(false),
      rate,
    }),
  }),
  list: route({
    ...base,
    method: 'get',
    path: `${path}/replays`,
    id: 'listReplays',
    summary: 'List replays, newest first',
    query: z.strictObject({
      ...PAGE,
      state: z.enum(['running', 'done', 'cancelled', 'stopped']).optional(),
      endpoint: id('ep').optional(),
    }),
    status: 200,
    answer: 'A page of replays',
    schema: page(Replay),
    problems: ['cursor_invalid'],
  }),
  get: route({
    ...base,
    method: 'get',
    path: `${path}/replays/{replay}`,
    id: 'getReplay',
    summary: 'Show a replay',
    status: 200,
    answer: 'The replay',
  }),
  stop: route({
    ...base,
    method: 'post',
    path: `${path}/replays/{replay}/cancel`,
    id: 'cancelReplay',
    summary: 'Cancel a replay',
    description:
      'What it has sent back to work goes on; `deliveries/cancel` ends that too. One that has ended stays as it is.',
    body: z.strictObject({}),
    bodyOptional: true,
    status: 200,
    answer: 'The replay',
  }),
};

interface Asked {
  endpoint?: string | undefined;
  event?: string | undefined;
  type?: string | undefined;
  state?: string | string[] | undefined;
  status?: number | undefined;
  class?: string | undefined;
  since?: Date | undefined;
  until?: Date | undefined;
}

/** @param states what an absent `state` means; null: states don't matter. */
function filterFrom(asked: Asked, states: readonly string[] | null): NewReplay['filter'] {
  if (asked.since !== undefined && asked.until !== undefined && asked.since >= asked.until)
    throw fieldProblem([{ pointer: '/filter/until', detail: 'must be after since' }]);
  return {
    delivery: null,
    endpoint: asked.endpoint ?? null,
    event: asked.event ?? null,
    type: asked.type ?? null,
    states: asked.state === undefined ? states : [asked.state].flat(),
    status: asked.status ?? null,
    class: asked.class ?? null,
    since: asked.since ?? null,
    until: asked.until ?? null,
  };
}

export function replayRoutes(deps: ApiDeps): BoundRoute[] {
  const { db } = deps;

  const make = async (
    tenant: string,
    replay: Pick<NewReplay, 'action' | 'source' | 'filter' | 'missed' | 'rate'>,
  ) => {
    await requireTenant(deps, tenant);
    const { endpoint } = replay.filter;
    if (endpoint !== null) {
      const { state } = (await getEndpoint(db, tenant, endpoint)) ?? noEndpoint();
      if (state === 'disabled' && replay.action === 'resend')
        throw new ProblemError('endpoint_disabled', `endpoint ${endpoint} is disabled`);
    }
    const replayId =
      (await insertReplay(db, { ...replay, id: newId('rpl'), tenant, key: null, aliveMs: 0 })) ?? noTenant();
    deps.scan?.();
    return {
      status: 202,
      json: replayView((await getReplay(db, tenant, replayId)) ?? noReplay(), Date.now()),
      headers: { location: `/v1/tenants/${encodeURIComponent(tenant)}/replays/${replayId}` },
    };
  };

  return [
    bind(replaySpecs.resend, ({ param, body }) =>
      make(param('tenant'), {
        action: 'resend',
        source: 'deliveries',
        filter: filterFrom(body.filter, RESENT),
        missed: false,
        rate: body.rate,
      }),
    ),
    bind(replaySpecs.cancel, ({ param, body }) =>
      make(param('tenant'), {
        action: 'cancel',
        source: 'deliveries',
        filter: filterFrom(body.filter, WAITING),
        missed: false,
        rate: 1_000, // it spares the receiver; nothing to pace
      }),
    ),
    bind(replaySpecs.deadLetters, ({ param, body }) =>
      make(param('tenant'), {
        action: 'resend',
        source: 'dead_letters',
        filter: filterFrom(body.filter, null),
        missed: false,
        rate: body.rate,
      }),
    ),
    bind(replaySpecs.recover, ({ param, body }) => {
      const { since, until, states, missed } = body;
      if (until !== undefined && since >= until)
        throw fieldProblem([{ pointer: '/until', detail: 'must be after since' }]);
      const filter = filterFrom({ endpoint: param('endpoint'), since, until, state: states }, null);
      return make(param('tenant'), {
        action: 'resend',
        source: 'deliveries',
        filter,
        missed,
        rate: body.rate,
      });
    }),
    bind(replaySpecs.list, async ({ param, query }) => {
      const tenant = param('tenant');
      const filter = { state: query.state ?? null, endpoint: query.endpoint ?? null };
      const { after, cursor } = paging(query.cursor, 'replays', [tenant, filter], [ID_FORM]);
      await requireTenant(deps, tenant);
      const rows = await listReplays(db, tenant, filter, after?.[0] ?? null, query.limit + 1);
      const now = Date.now();
      return {
        status: 200,
        json: pageOf(
          rows,
          query.limit,
          (row) => replayView(row, now),
          (last) => cursor([last.id]),
        ),
      };
    }),
    bind(replaySpecs.get, async ({ param }) => ({
      status: 200,
      json: replayView((await getReplay(db, param('tenant'), param('replay'))) ?? noReplay(), Date.now()),
    })),
    bind(replaySpecs.stop, async ({ param }) => ({
      status: 200,
      json: replayView((await cancelReplay(db, param('tenant'), param('replay'))) ?? noReplay(), Date.now()),
    })),
  ];
}
