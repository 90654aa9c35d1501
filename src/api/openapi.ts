/**
 * The OpenAPI 3.1 document, from the same objects that check requests. Called by server.ts for /openapi.json and by
 * scripts/openapi.mjs, which writes openapi.json and docs/problems.md; a test fails when those differ.
 */
import { createRoute, OpenAPIHono, z } from '@hono/zod-openapi';
import { PROBLEMS, type ProblemCode } from '../errors.ts';
import { deadLetterSpecs } from './dead-letters.ts';
import { deliverySpecs } from './deliveries.ts';
import { RetryPolicy } from './endpoint-schemas.ts';
import { secretSpecs } from './endpoint-secrets.ts';
import { endpointStateSpecs } from './endpoint-states.ts';
import { statsSpecs } from './endpoint-stats.ts';
import { testSpecs } from './endpoint-tests.ts';
import { endpointSpecs } from './endpoints.ts';
import { eventReadSpecs } from './event-reads.ts';
import { eventSpecs } from './events.ts';
import { keySpecs } from './keys.ts';
import { replaySpecs } from './replays.ts';
import { PARAMETERS, type RouteSpec } from './route.ts';
import { systemSpecs } from './system.ts';
import { tenantSpecs } from './tenants.ts';

const CODES = Object.keys(PROBLEMS) as [ProblemCode, ...ProblemCode[]];
const Problem = z
  .object({
    type: z.string().openapi({ description: 'Address of the description of `code`' }),
    title: z.string(),
    status: z.int(),
    code: z.enum(CODES).openapi({ description: 'Stable; branch on this' }),
    detail: z.string(),
    advice: z.string(),
    errors: z
      .array(
        z.object({ pointer: z.string().optional(), parameter: z.string().optional(), detail: z.string() }),
      )
      .optional()
      .openapi({
        description: 'What is wrong where: a JSON pointer into the body, or the name of a parameter',
      }),
    request_id: z.string(),
  })
  .openapi('Problem');

export function allSpecs(): RouteSpec[] {
  const groups = [
    tenantSpecs,
    endpointSpecs,
    endpointStateSpecs,
    testSpecs,
    statsSpecs,
    secretSpecs,
    eventSpecs,
    eventReadSpecs,
    deliverySpecs,
    deadLetterSpecs,
    replaySpecs,
    keySpecs,
    systemSpecs,
  ];
  return groups.flatMap((group) => Object.values(group) as unknown as RouteSpec[]);
}

export function openApiDocument(): object {
  const app = new OpenAPIHono();
  const registry = app.openAPIRegistry;
  registry.registerComponent('securitySchemes', 'key', {
    type: 'http',
    scheme: 'bearer',
    description: 'An API key, `phk_…`, or the admin key',
  });
  registry.register('RetryPolicy', RetryPolicy);
  registry.register('Problem', Problem);
  for (const spec of allSpecs()) registry.registerPath(described(spec));
  return app.getOpenAPI31Document({
    openapi: '3.1.0',
    info: {
      title: 'Posthaste',
      version: '1',
      description:
        'Webhooks, delivered: signed, at least once. Errors are RFC 9457 problems with a stable `code`.',
      license: { name: 'Apache-2.0', url: 'https://www.apache.org/licenses/LICENSE-2.0' },
    },
    servers: [{ url: '/' }],
  });
}

function described(spec: RouteSpec) {
  const names = [...spec.path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] as string);
  const params = Object.fromEntries(
    names.map((name) => [name, z.string().openapi({ description: PARAMETERS[name]?.description ?? '' })]),
  );
  const raw = spec.id === 'createEvent' ? { '*/*': { schema: z.any() } } : {};
  return createRoute({
    method: spec.method,
    path: spec.path,
    operationId: spec.id,
    tags: [spec.tag],
    summary: spec.summary,
    ...(spec.description === undefined ? {} : { description: spec.description }),
    ...(spec.open ? {} : { security: [{ key: [] }] }),
    request: {
      ...(names.length === 0 ? {} : { params: z.object(params) }),
      ...(spec.query === undefined ? {} : { query: spec.query as z.ZodObject }),
      ...(spec.tag === 'Events' && spec.bodyOwn
        ? { headers: z.object({ 'idempotency-key': z.string().max(255).optional() }) }
        : {}),
      ...(spec.body === undefined
        ? {}
        : {
            body: {
              required: spec.bodyOptional !== true,
              content: { 'application/json': { schema: spec.body }, ...raw },
            },
          }),
    },
    responses: { [spec.status]: answer(spec), ...problems(spec) },
  } as Parameters<typeof createRoute>[0]);
}

function answer(spec: RouteSpec) {
  const media = spec.media ?? [];
  const content = {
    ...(spec.schema === undefined ? {} : { 'application/json': { schema: spec.schema } }),
    ...Object.fromEntries(media.map((type) => [type, { schema: z.string() }])),
  };
  return { description: spec.answer, ...(Object.keys(content).length === 0 ? {} : { content }) };
}

/** One response per status, which names the codes it may carry. */
function problems(spec: RouteSpec) {
  const codes = new Set<ProblemCode>(['internal', ...(spec.problems ?? [])]);
  if (!spec.open) for (const code of ['unauthorized', 'unavailable'] as const) codes.add(code);
  for (const match of spec.path.matchAll(/\{(\w+)\}/g)) {
    const code = PARAMETERS[match[1] as string]?.code;
    if (code !== undefined) codes.add(code);
  }
  if (spec.query !== undefined || spec.method === 'put') codes.add('invalid_parameters');
  if (spec.body !== undefined) {
    for (const code of ['malformed_json', 'malformed_utf8', 'body_too_large', 'invalid_fields'] as const)
      codes.add(code);
    for (const code of ['unsupported_media_type', 'unsupported_encoding'] as const) codes.add(code);
    if (spec.bodyOptional !== true) codes.add('body_missing');
  }
  const byStatus = Map.groupBy([...codes].sort(), (code) => PROBLEMS[code][0]);
  return Object.fromEntries(
    [...byStatus].map(([status, list]) => [
      status,
      {
        description: list.map((code) => `\`${code}\``).join(', '),
        content: { 'application/problem+json': { schema: Problem } },
      },
    ]),
  );
}

/** docs/problems.md. */
export function problemsMarkdown(): string {
  const rows = Object.entries(PROBLEMS).map(
    ([code, [status, title, advice]]) => `| \`${code}\` | ${status} | ${title} | ${advice} |`,
  );
  return `# Problems

Written by scripts/openapi.mjs from src/errors.ts; do not edit. Every error of the API is an RFC 9457 document
(\`application/problem+json\`) with \`type\`, \`title\`, \`status\`, \`code\`, \`detail\`, \`advice\`, \`request_id\` and, for bad
input, \`errors\`: a JSON \`pointer\` into the body or the name of a \`parameter\`, each with a \`detail\`. Branch on \`code\`.

| code | status | title | what to do |
|---|---|---|---|
${rows.join('\n')}
`;
}
