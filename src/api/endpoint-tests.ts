/**
 * Test sends: one attempt at an endpoint, answered with what came of it. The row is made here and sent by a worker, like
 * every other; this waits for its end by looking at the row. What a test may do that traffic may not:
 * migrations/functions/tests.sql.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { z } from '@hono/zod-openapi';
import { listAttempts } from '../db/attempts.ts';
import { type DeliveryRow, getDelivery } from '../db/deliveries.ts';
import { makeTest } from '../db/tests.ts';
import { finish } from '../db/verbs.ts';
import { EVENT_TYPE, pointerToken } from '../domain/event-input.ts';
import { memberSpans } from '../domain/json-span.ts';
import { fieldProblem, type InputError, ProblemError } from '../errors.ts';
import { sentBytes } from './deliveries.ts';
import { Attempt, attemptView } from './delivery-views.ts';
import type { ApiDeps } from './deps.ts';
import { parseJson, requireJsonType } from './json-body.ts';
import { noEndpoint, noTenant } from './missing.ts';
import type { RateLimit } from './rate-limit.ts';
import { readBody } from './read-body.ts';
import { type BoundRoute, bind, type Call, route } from './route.ts';
import { eventType } from './schemas.ts';

/** From the request to the start of the attempt: an idle system takes a tenth of it. */
const SLACK_MS = 1_000;
/** An attempt that began at the last moment is waited for, up to this. */
const LATE_MS = 5_000;
const POLL_MS = 50;
const ENVELOPE_BYTES = 16 * 1024;
const TYPE = 'posthaste.test';
const SAMPLE = '{"message":"This is a test of your webhook endpoint. No action is needed."}';

const TestInput = z
  .strictObject({
    event_type: eventType.optional().openapi({ description: `Default: ${TYPE}` }),
    data: z.any().optional().openapi({ description: 'Any JSON value, kept and signed exactly as it came' }),
  })
  .openapi('TestInput');
const TestResult = z
  .object({
    delivered: z.boolean().openapi({ description: 'The endpoint answered 2xx' }),
    delivery: z.string(),
    event: z.string(),
    event_type: z.string(),
    attempt: Attempt,
  })
  .openapi('TestResult');

export const testSpecs = {
  test: route({
    tag: 'Endpoints',
    method: 'post',
    path: '/v1/tenants/{tenant}/endpoints/{endpoint}/test',
    id: 'testEndpoint',
    summary: 'Send a test event to an endpoint and see what it answers',
    description:
      "One attempt, signed and logged like any other, answered within the endpoint's `timeout_ms` and a second. It is sent to paused and disabled endpoints, too, needs none of their slots, is never repeated and goes to no other endpoint. " +
      'A success counts for the endpoint’s health; a failure does not.',
    body: TestInput,
    bodyOwn: true,
    bodyOptional: true,
    status: 200,
    answer: 'What came of it; an endpoint that fails is a result, not an error',
    schema: TestResult,
    problems: ['test_in_flight', 'test_not_sent', 'rate_limited', 'event_too_large'],
  }),
};

export function testRoutes(deps: ApiDeps, probing: RateLimit): BoundRoute[] {
  const { db } = deps;

  /** The delivery when it has ended; null when it has not in time. */
  const ended = async (
    tenant: string,
    delivery: string,
    at: Date,
    limitMs: number,
  ): Promise<DeliveryRow | null> => {
    const began = performance.now();
    for (;;) {
      await delay(POLL_MS);
      const row = await getDelivery(db, tenant, delivery, at);
      if (row === null || row.finished_at !== null) return row;
      const waited = performance.now() - began;
      if (waited < limitMs || (row.state === 'sending' && waited < limitMs + LATE_MS)) continue;
      await finish(db, [delivery]); // past its deadline: makes room for the next test
      return getDelivery(db, tenant, delivery, at);
    }
  };

  return [
    bind(testSpecs.test, async (call) => {
      const tenant = call.param('tenant');
      const endpoint = call.param('endpoint');
      const { type, body } = await inputOf(call, deps.config.maxEventBytes);
      probing.take(tenant);
      const made = await makeTest(db, { tenant, endpoint, type, body, slackMs: SLACK_MS });
      if (made.outcome !== 'made') {
        if (made.outcome === 'no_tenant') noTenant();
        if (made.outcome === 'no_endpoint') noEndpoint();
        throw new ProblemError('test_in_flight', 'a test of this endpoint is under way');
      }
      deps.scan?.();
      const row = await ended(tenant, made.delivery, made.at, made.timeout_ms + SLACK_MS);
      const [attempt] =
        row?.finished_at == null ? [] : await listAttempts(db, tenant, made.delivery, made.at, row.n - 1, 1);
      if (row === null || attempt === undefined) {
        throw new ProblemError('test_not_sent', 'no attempt was made, or its answer is still awaited', {
          more: { delivery: made.delivery },
        });
      }
      return {
        status: 200,
        json: {
          delivered: row.state === 'delivered',
          delivery: row.id,
          event: row.event,
          event_type: row.event_type,
          attempt: attemptView(attempt, await sentBytes(deps, tenant, row)),
        },
      };
    }),
  ];
}

/** `data` is cut out of the request as it came, like that of any event. */
async function inputOf({ ctx }: Call, max: number): Promise<{ type: string; body: Buffer }> {
  const bytes = await readBody(ctx, max + ENVELOPE_BYTES, 'event_too_large');
  if (bytes.length === 0) return { type: TYPE, body: Buffer.from(SAMPLE) };
  requireJsonType(ctx);
  const value = parseJson(bytes);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw fieldProblem([{ pointer: '', detail: 'must be an object' }]);
  const errors: InputError[] = [];
  const spans = new Map<string, { start: number; end: number }>();
  for (const member of memberSpans(bytes)) {
    const pointer = `/${pointerToken(member.key)}`;
    if (member.key !== 'event_type' && member.key !== 'data')
      errors.push({ pointer, detail: 'unknown field' });
    else if (spans.has(member.key)) errors.push({ pointer, detail: 'the field is given twice' });
    spans.set(member.key, member);
  }
  const type = (value as { event_type?: unknown }).event_type ?? TYPE;
  if (typeof type !== 'string' || !EVENT_TYPE.test(type))
    errors.push({ pointer: '/event_type', detail: 'must be 1 to 128 of A-Z a-z 0-9 _ . : / -' });
  if (errors.length > 0) throw fieldProblem(errors);
  const data = spans.get('data');
  const body = data === undefined ? Buffer.from(SAMPLE) : bytes.subarray(data.start, data.end);
  if (body.length > max)
    throw new ProblemError('event_too_large', `data has ${body.length} bytes; at most ${max} are accepted`);
  return { type: type as string, body };
}
