/**
 * Every problem the API can answer with: one table, from which responses, OpenAPI and docs/problems.md come.
 * Codes are stable: clients branch on them. Add a row here, then run scripts/openapi.mjs.
 */

/** status, title, and what the caller should do. */
export const PROBLEMS = {
  malformed_request: [400, 'Malformed request', 'The request is not valid HTTP. Check the client.'],
  malformed_path: [400, 'Malformed path', 'Percent-encode the path correctly.'],
  malformed_json: [400, 'Malformed JSON', 'Send one valid JSON text.'],
  malformed_utf8: [400, 'Malformed UTF-8', 'Encode the body as UTF-8.'],
  body_missing: [400, 'Body missing', 'Send a JSON object as the body.'],
  body_broken: [400, 'Body broken off', 'Send as many bytes as content-length says.'],
  invalid_parameters: [
    400,
    'Invalid parameters',
    'Correct the path, query or header parameters named in `errors`.',
  ],
  cursor_invalid: [
    400,
    'Invalid cursor',
    'Start again without a cursor; keep all filters the same from page to page.',
  ],
  unauthorized: [401, 'Unauthorized', 'Send a valid key as `Authorization: Bearer phk_…`.'],
  not_found: [404, 'Not found', 'Check the path; /openapi.json lists every operation.'],
  tenant_not_found: [404, 'Tenant not found', 'Create the tenant first: PUT /v1/tenants/{tenant}.'],
  endpoint_not_found: [
    404,
    'Endpoint not found',
    'Check the id; the endpoint may belong to another tenant or be deleted.',
  ],
  event_not_found: [
    404,
    'Event not found',
    'Check the id; the event may belong to another tenant or be past its retention.',
  ],
  delivery_not_found: [
    404,
    'Delivery not found',
    'Check the id; the delivery may belong to another tenant or be past its retention.',
  ],
  replay_not_found: [404, 'Replay not found', 'Check the id; the replay may belong to another tenant.'],
  key_not_found: [404, 'Key not found', 'Check the id, or list the keys: GET /v1/keys.'],
  method_not_allowed: [405, 'Method not allowed', 'Use one of the methods in the `allow` header.'],
  request_timeout: [408, 'Request timeout', 'Send the whole request faster.'],
  event_conflict: [409, 'Event exists with other content', 'Use a new id for a new event.'],
  request_in_flight: [
    409,
    'Same request in flight',
    'A request with the same key or event id has not ended yet. Repeat it later.',
  ],
  endpoint_disabled: [
    409,
    'Endpoint disabled',
    'Enable a disabled endpoint first: POST …/endpoints/{endpoint}/enable. A deleted one takes nothing more.',
  ],
  test_in_flight: [
    409,
    'Test in flight',
    'An endpoint takes one test at a time. Wait for the answer of the one under way, then repeat.',
  ],
  too_many_secrets: [
    409,
    'Too many signing secrets',
    'Wait until the oldest secret expires, or repeat with `expire_oldest`: true.',
  ],
  key_protected: [
    409,
    'Key protected',
    'The admin key comes from POSTHASTE_ADMIN_KEY. Change it there and restart.',
  ],
  test_delivery: [409, 'Test send', 'A test is sent once. Send another: POST …/endpoints/{id}/test.'],
  event_expired: [
    410,
    'Event no longer kept',
    'The event is past its retention (POSTHASTE_RETENTION_DAYS). Send a new one.',
  ],
  body_too_large: [413, 'Body too large', 'Send a smaller body.'],
  event_too_large: [
    413,
    'Event too large',
    'Send a reference instead of the data, or raise POSTHASTE_MAX_EVENT_BYTES.',
  ],
  unsupported_media_type: [415, 'Unsupported media type', 'Send `content-type: application/json`, in UTF-8.'],
  unsupported_encoding: [
    415,
    'Unsupported content encoding',
    'Send the body uncompressed, without `content-encoding`.',
  ],
  invalid_fields: [422, 'Invalid fields', 'Correct the fields named in `errors`.'],
  idempotency_key_reused: [422, 'Idempotency key reused', 'Use a new Idempotency-Key for another request.'],
  rate_limited: [429, 'Too many requests', 'Wait as long as `retry-after` says.'],
  head_too_large: [431, 'Request head too large', 'Send fewer or shorter headers.'],
  internal: [
    500,
    'Internal error',
    'Repeat the request; if it persists, report `request_id` to the operator.',
  ],
  unavailable: [
    503,
    'Database unavailable',
    'Nothing was done, or the answer was lost. Repeat the request after `retry-after` seconds.',
  ],
  test_not_sent: [
    504,
    'Test not answered in time',
    'No worker made the attempt in time. Check that relay and worker run and reach Temporal (/readyz), then repeat.',
  ],
} as const satisfies Record<string, readonly [status: number, title: string, advice: string]>;

export type ProblemCode = keyof typeof PROBLEMS;

/** What is wrong with one input: a field of the body (JSON pointer) or a parameter (its name). */
export type InputError =
  | { readonly pointer: string; readonly detail: string }
  | { readonly parameter: string; readonly detail: string };

interface ProblemRest {
  readonly errors?: readonly InputError[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly more?: Readonly<Record<string, unknown>>;
}

/** Thrown anywhere below a route; src/api/problem.ts renders it. `detail` is for people and may change. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly code: ProblemCode;
  readonly errors: readonly InputError[] | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Further members of the document. */
  readonly more: Readonly<Record<string, unknown>>;

  constructor(code: ProblemCode, detail: string, rest: ProblemRest = {}) {
    super(detail);
    this.code = code;
    this.errors = rest.errors;
    this.headers = rest.headers ?? {};
    this.more = rest.more ?? {};
  }
}

/** Wrong fields of a body. The detail repeats the first one for readers of logs. */
export function fieldProblem(errors: readonly InputError[]): ProblemError {
  const first = errors[0];
  const where = first === undefined ? 'body' : 'pointer' in first ? first.pointer || 'body' : first.parameter;
  return new ProblemError('invalid_fields', `${where}: ${first?.detail ?? 'is wrong'}`, { errors });
}

/** Wrong parameters of a path, a query or a header. */
export function parameterProblem(errors: readonly { parameter: string; detail: string }[]): ProblemError {
  const first = errors[0];
  return new ProblemError('invalid_parameters', `${first?.parameter}: ${first?.detail}`, { errors });
}
