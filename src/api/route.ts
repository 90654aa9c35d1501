/**
 * What a route is: one object from which the OpenAPI document, the validation of requests and the list of allowed
 * methods come (src/api/openapi.ts, src/api/dispatch.ts). Handlers get checked input and answer a plain Reply.
 */
import { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { type ProblemCode, parameterProblem } from '../errors.ts';

export interface RouteSpec<Q extends z.ZodType = z.ZodType, B extends z.ZodType = z.ZodType> {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** `{name}` parameters; each is checked by PARAMETERS. */
  readonly path: string;
  readonly id: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  /** No key needed. */
  readonly open?: boolean;
  readonly query?: Q;
  readonly body?: B;
  /** An absent body counts as `{}`. */
  readonly bodyOptional?: boolean;
  /** The handler reads the body itself; the schema is for the document only. */
  readonly bodyOwn?: boolean;
  readonly status: number;
  readonly answer: string;
  readonly schema?: z.ZodType;
  /** Media types of the answer other than JSON. */
  readonly media?: readonly string[];
  /** Beside those that every route may answer. */
  readonly problems?: readonly ProblemCode[];
}

export interface Call<Q = unknown, B = unknown> {
  readonly ctx: Context;
  readonly requestId: string;
  readonly query: Q;
  readonly body: B;
  /** A path parameter, decoded and of the right form. */
  param(name: string): string;
}

export interface Reply {
  readonly status: number;
  /** Sent as JSON; undefined: no body. */
  readonly json?: unknown;
  /** Sent as it is, with a content type among the headers. */
  readonly raw?: string | ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface BoundRoute {
  readonly spec: RouteSpec;
  readonly handle: (call: Call) => Promise<Reply>;
}

/** Gives a route its types. */
export function route<Q extends z.ZodType = z.ZodUndefined, B extends z.ZodType = z.ZodUndefined>(
  spec: RouteSpec<Q, B>,
): RouteSpec<Q, B> {
  return spec;
}

/** Joins a route with the code behind it. */
export function bind<Q extends z.ZodType, B extends z.ZodType>(
  spec: RouteSpec<Q, B>,
  handle: (call: Call<z.output<Q>, z.output<B>>) => Promise<Reply>,
): BoundRoute {
  return { spec: spec as unknown as RouteSpec, handle: handle as BoundRoute['handle'] };
}

const ID = (prefix: string) => new RegExp(`^${prefix}_[0-9A-HJKMNP-TV-Z]{26}$`);

/** Path parameters: their form, and the problem of one that cannot exist. */
export const PARAMETERS: Readonly<Record<string, { form: RegExp; code: ProblemCode; description: string }>> =
  {
    tenant: {
      form: /^[A-Za-z0-9_.:-]{1,64}$/,
      code: 'tenant_not_found',
      description: "The caller's own id of the tenant, 1 to 64 of A-Z a-z 0-9 _ . : -",
    },
    endpoint: { form: ID('ep'), code: 'endpoint_not_found', description: 'Id of the endpoint, `ep_…`' },
    event: { form: /^[A-Za-z0-9_-]{1,64}$/, code: 'event_not_found', description: 'Id of the event' },
    delivery: { form: ID('dlv'), code: 'delivery_not_found', description: 'Id of the delivery, `dlv_…`' },
    replay: { form: ID('rpl'), code: 'replay_not_found', description: 'Id of the replay, `rpl_…`' },
    key: {
      form: /^key_[0-9A-Za-z]{1,32}$/,
      code: 'key_not_found',
      description: 'Id of the API key, `key_…`',
    },
  };

/** What a list's `limit` and `cursor` look like; spread into a query schema. */
export const PAGE = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'must be a whole number from 1 to 200')
    .transform(Number)
    .refine((value) => value >= 1 && value <= 200, 'must be a whole number from 1 to 200')
    .default(50)
    .openapi({ type: 'integer', minimum: 1, maximum: 200, default: 50 }),
  cursor: z.string().optional().openapi({ description: '`next_cursor` of the page before' }),
};

/** A problem for one query or header parameter. */
export function badParameter(parameter: string, detail: string): Error {
  return parameterProblem([{ parameter, detail }]);
}
