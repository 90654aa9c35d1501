/**
 * Accepting events: one, a batch, or raw bytes. The hot path of the API: no schema library, the bytes of `data` are
 * cut out of the request as they came. Answers 202 only after the commit. Reading is in event-reads.ts.
 */
import { createHash } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import type { NewEvent } from '../db/events.ts';
import type { KeyedAnswer, KeyedRequest } from '../db/idempotency.ts';
import { checkEvent, checkRawEvent, type EventInput } from '../domain/event-input.ts';
import { elementSpans, memberSpans } from '../domain/json-span.ts';
import { fieldProblem, type InputError, ProblemError, parameterProblem } from '../errors.ts';
import { newId } from '../ids.ts';
import type { ApiDeps } from './deps.ts';
import type { Intake } from './intake.ts';
import { parseJson, requireJsonType } from './json-body.ts';
import { noTenant } from './missing.ts';
import { readBody } from './read-body.ts';
import { type BoundRoute, badParameter, bind, type Call, type Reply, route } from './route.ts';
import { eventType, timestamp } from './schemas.ts';

/** Room around `data` in a request for one event. */
const ENVELOPE_BYTES = 64 * 1024;
const MAX_BATCH = 1_000;
/** A batch may be this many largest events long. */
const BATCH_FACTOR = 32;
/** Standard Webhooks asks for payloads below 20 kB. */
const HINT_BYTES = 20 * 1024;
const HINT =
  'The event is larger than 20 KB, which some receivers refuse; consider sending a reference instead.';

const eventId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);
const version = z.union([z.int().min(0), z.string().regex(/^\d{1,19}$/)]).openapi({
  description: "The producer's own version of the thing, 0 to 2^63-1; a string keeps large ones exact",
});

/** The document's view of what src/domain/event-input.ts checks; a test holds them together. */
export const EventInputSchema = z
  .strictObject({
    type: eventType,
    data: z.any().openapi({ description: 'Any JSON value. Its text is kept and signed exactly as it came.' }),
    id: eventId
      .nullable()
      .optional()
      .openapi({ description: "The caller's own id, unique per tenant; it becomes webhook-id" }),
    version: version.nullable().optional(),
    timestamp: timestamp.nullable().optional().openapi({ description: 'When it happened; default: now' }),
  })
  .openapi('EventInput');
const Accepted = z
  .object({ id: z.string(), type: z.string(), created_at: timestamp, hint: z.string().optional() })
  .openapi('AcceptedEvent');
const RawQuery = z.strictObject({
  mode: z
    .enum(['raw'])
    .optional()
    .openapi({ description: '`raw`: the body goes out as it is, with its content type' }),
  type: z.string().optional().openapi({ description: 'Event type, in raw mode' }),
  id: z.string().optional().openapi({ description: "The caller's own id, in raw mode" }),
  version: z.string().optional(),
  timestamp: z.string().optional(),
});

export const eventSpecs = {
  create: route({
    tag: 'Events',
    method: 'post',
    path: '/v1/tenants/{tenant}/events',
    id: 'createEvent',
    summary: 'Send an event',
    description:
      'Answers after the commit. With `Idempotency-Key` or an own id the same request gets the first answer again ' +
      '(header `idempotency-replayed: true`). `?mode=raw&type=…` takes any body and content type verbatim; an own id ' +
      'then comes as parameter `id` or header `webhook-id`.',
    query: RawQuery,
    body: EventInputSchema,
    bodyOwn: true,
    status: 202,
    answer: 'Accepted and committed',
    schema: Accepted,
    problems: ['event_conflict', 'request_in_flight', 'event_too_large', 'idempotency_key_reused'],
  }),
  batch: route({
    tag: 'Events',
    method: 'post',
    path: '/v1/tenants/{tenant}/events/batch',
    id: 'createEvents',
    summary: 'Send up to 1,000 events in one commit, all or none',
    body: z.strictObject({ events: z.array(EventInputSchema).min(1).max(MAX_BATCH) }).openapi('EventBatch'),
    bodyOwn: true,
    status: 202,
    answer: 'Accepted and committed, in the order of the request',
    schema: z.object({ data: z.array(Accepted) }),
    problems: ['event_conflict', 'request_in_flight', 'event_too_large', 'idempotency_key_reused'],
  }),
};

export function eventRoutes(deps: ApiDeps, intake: Intake): BoundRoute[] {
  const max = deps.config.maxEventBytes;

  const event = (tenant: string, input: Omit<EventInput, 'data'>, body: Buffer, contentType?: string) => {
    const atMs = Date.now();
    return {
      tenant,
      id: input.id ?? newId('evt', atMs),
      own: input.id !== null,
      atMs,
      type: input.type,
      raw: contentType !== undefined,
      contentType: contentType ?? 'application/json',
      version: input.version,
      occurredAtMs: input.occurredAtMs,
      body,
    };
  };
  type Made = ReturnType<typeof event>;

  const fromJson = async ({ ctx }: Call, tenant: string): Promise<{ events: Made[]; bytes: Buffer }> => {
    requireJsonType(ctx);
    const bytes = await readBody(ctx, max + ENVELOPE_BYTES, 'event_too_large');
    const checked = checkEvent(parseJson(bytes), bytes, 0, '');
    if (!checked.ok) throw fieldProblem(checked.errors);
    return { events: [event(tenant, checked.event, dataOf(bytes, checked.event, '/data', max))], bytes };
  };

  const fromRaw = async (call: Call<z.output<typeof RawQuery>>, tenant: string) => {
    const { type = null, version = null, timestamp = null } = call.query;
    const header = call.ctx.req.header('webhook-id') ?? null;
    const id = call.query.id ?? header;
    if (header !== null && header !== id) throw badParameter('webhook-id', 'differs from the parameter id');
    const checked = checkRawEvent({ type, id, version, timestamp });
    if (!checked.ok) throw parameterProblem(checked.errors);
    const contentType = call.ctx.req.header('content-type') || 'application/octet-stream';
    if (!/^[\x21-\x7e](?:[\x20-\x7e]{0,98}[\x21-\x7e])?$/.test(contentType)) {
      throw badParameter('content-type', 'must be at most 100 visible ASCII characters');
    }
    const bytes = await readBody(call.ctx, max, 'event_too_large');
    return { events: [event(tenant, checked.event, bytes, contentType)], bytes };
  };

  const fromBatch = async ({ ctx }: Call, tenant: string): Promise<{ events: Made[]; bytes: Buffer }> => {
    requireJsonType(ctx);
    const bytes = await readBody(ctx, max * BATCH_FACTOR);
    const list = eventsOf(parseJson(bytes), bytes);
    const errors: InputError[] = [];
    const events: Made[] = [];
    const spans = elementSpans(bytes, list.start);
    for (const [index, value] of list.values.entries()) {
      const at = `/events/${index}`;
      const checked = checkEvent(value, bytes, spans[index]!.start, at);
      if (checked.ok)
        events.push(event(tenant, checked.event, dataOf(bytes, checked.event, `${at}/data`, max)));
      else errors.push(...checked.errors);
    }
    if (errors.length > 0) throw fieldProblem(errors);
    return { events, bytes };
  };

  return [
    bind(eventSpecs.create, async (call) => {
      const tenant = call.param('tenant');
      const raw = call.query.mode === 'raw';
      if (!raw) refuseRawParameters(call.query);
      const key = idempotencyKey(call);
      const { events, bytes } = raw ? await fromRaw(call, tenant) : await fromJson(call, tenant);
      const only = events[0] as Made;
      if (key === null && !only.own) {
        if (!(await intake.add(only))) noTenant();
        return { status: 202, json: accepted(only, only.id, only.atMs) };
      }
      const request = { tenant, key, hash: key === null ? null : requestHash(call, bytes), events };
      const [answer] = await intake.addKeyed(request);
      return keyedReply([answer as KeyedAnswer], request, (views) => views[0]);
    }),
    bind(eventSpecs.batch, async (call) => {
      const tenant = call.param('tenant');
      const key = idempotencyKey(call);
      const { events, bytes } = await fromBatch(call, tenant);
      const request = { tenant, key, hash: key === null ? null : requestHash(call, bytes), events };
      const answers = await intake.addBatch(request).catch((error) => {
        throw conflictOf(error, events);
      });
      return keyedReply(answers, request, (data) => ({ data }));
    }),
  ];
}

function refuseRawParameters(query: z.output<typeof RawQuery>): void {
  const name = (['type', 'id', 'version', 'timestamp'] as const).find((name) => query[name] !== undefined);
  if (name !== undefined)
    throw badParameter(name, 'belongs to mode=raw; otherwise it is a field of the body');
}

function dataOf(bytes: Buffer, event: EventInput, pointer: string, max: number): Buffer {
  const { start, end } = event.data;
  if (end - start > max) {
    throw new ProblemError('event_too_large', `data has ${end - start} bytes; at most ${max} are accepted`, {
      errors: [{ pointer, detail: `must be at most ${max} bytes long` }],
    });
  }
  return bytes.subarray(start, end);
}

function eventsOf(value: unknown, bytes: Buffer): { values: unknown[]; start: number } {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw fieldProblem([{ pointer: '', detail: 'must be an object with a list of events' }]);
  }
  const members = memberSpans(bytes);
  const unknown = members.find((member) => member.key !== 'events');
  if (unknown !== undefined)
    throw fieldProblem([{ pointer: `/${unknown.key}`, detail: 'unknown field; known is events' }]);
  if (members.length > 1) throw fieldProblem([{ pointer: '/events', detail: 'the field is given twice' }]);
  const values = (value as { events?: unknown }).events;
  if (!Array.isArray(values))
    throw fieldProblem([{ pointer: '/events', detail: 'must be a list of events' }]);
  if (values.length === 0)
    throw fieldProblem([{ pointer: '/events', detail: 'must hold at least one event' }]);
  if (values.length > MAX_BATCH) {
    throw new ProblemError(
      'body_too_large',
      `a batch holds at most ${MAX_BATCH} events; this one has ${values.length}`,
      {
        errors: [{ pointer: '/events', detail: `must be at most ${MAX_BATCH} items long` }],
      },
    );
  }
  return { values, start: members[0]!.start };
}

function idempotencyKey({ ctx }: Call): string | null {
  const key = ctx.req.header('idempotency-key');
  if (key === undefined) return null;
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw badParameter('idempotency-key', 'must be 1 to 255 visible ASCII characters without spaces');
  }
  return key;
}

/** What makes two requests the same: where they go, what they say, and how it is to be read. */
function requestHash({ ctx }: Call, bytes: Buffer): Buffer {
  const { req } = ctx;
  const head = `${req.url.slice(req.url.indexOf('/', 8))}\n${req.header('content-type') ?? ''}\n${req.header('webhook-id') ?? ''}\n`;
  return createHash('sha256').update(head).update(bytes).digest();
}

function accepted(event: NewEvent, id: string, atMs: number) {
  const view = { id, type: event.type, created_at: new Date(atMs).toISOString() };
  return event.body.length > HINT_BYTES ? { ...view, hint: HINT } : view;
}

function keyedReply(
  answers: readonly KeyedAnswer[],
  request: KeyedRequest,
  shape: (views: unknown[]) => unknown,
): Reply {
  const outcome = answers[0]?.outcome;
  if (outcome === 'no_tenant') noTenant();
  if (outcome === 'reused') {
    throw new ProblemError(
      'idempotency_key_reused',
      'the Idempotency-Key belongs to a request with another content',
      {
        errors: [{ parameter: 'idempotency-key', detail: 'was used for another request' }],
      },
    );
  }
  if (outcome === 'conflict') throw conflict([{ pointer: '/id', detail: 'exists with other content' }]);
  const views = request.events.map((event, index) => {
    const answer = answers[index] as KeyedAnswer;
    const stored = outcome === 'replayed' ? answer.response?.[index] : undefined;
    return accepted(event, stored?.id ?? answer.id, stored?.at ?? answer.at.getTime());
  });
  const replayed = answers.every((answer) => answer.outcome === 'replayed' || answer.outcome === 'duplicate');
  return {
    status: 202,
    json: shape(views),
    ...(replayed ? { headers: { 'idempotency-replayed': 'true' } } : {}),
  };
}

/** The database names the conflicting events of a batch by their number. */
function conflictOf(error: unknown, events: readonly NewEvent[]): unknown {
  const { code, detail } = error as { code?: string; detail?: string };
  if (code !== 'PHDUP') return error;
  const numbers = (detail ?? '').split(',').map(Number);
  return conflict(
    numbers
      .filter((n) => n >= 1 && n <= events.length)
      .map((n) => ({ pointer: `/events/${n - 1}/id`, detail: 'exists with other content' })),
  );
}

function conflict(errors: InputError[]): ProblemError {
  return new ProblemError('event_conflict', 'an event with this id exists and has another content', {
    errors,
  });
}
