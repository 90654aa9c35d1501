/**
 * The way of every request: request id → key → parameters → body → handler → response; every error as a problem.
 * No chain of middleware: the event route runs thousands of times a second, and one plain function is easier to
 * follow. Called by server.ts.
 */
import type { Context, Hono } from 'hono';
import { fieldProblem, ProblemError, parameterProblem } from '../errors.ts';
import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import type { Authenticator } from './auth.ts';
import { checkBody, detailOf, requireJsonType } from './json-body.ts';
import { problemResponse } from './problem.ts';
import { readBody } from './read-body.ts';
import { type BoundRoute, type Call, PARAMETERS, type Reply, type RouteSpec } from './route.ts';

/** For bodies that are not events: settings, with room for three PEM texts. */
const MAX_BODY_BYTES = 512 * 1024;
const SANE_REQUEST_ID = /^[A-Za-z0-9._:-]{1,64}$/;

interface DispatchDeps {
  readonly auth: Authenticator;
  readonly log: Log;
}

export function mount(app: Hono, routes: readonly BoundRoute[], deps: DispatchDeps): void {
  for (const route of routes) {
    const path = route.spec.path.replaceAll(/\{(\w+)\}/g, ':$1');
    app.on(route.spec.method.toUpperCase(), path, (ctx) => run(ctx, route, deps));
  }
  const known = routes.map(({ spec }) => ({ spec, form: pathForm(spec.path) }));
  app.notFound((ctx) => elsewhere(ctx, known, deps));
  app.onError((error, ctx) => problemResponse(error, requestIdOf(ctx), deps.log));
}

async function run(ctx: Context, route: BoundRoute, deps: DispatchDeps): Promise<Response> {
  const requestId = requestIdOf(ctx);
  try {
    const { spec } = route;
    if (spec.open !== true) {
      const key = deps.auth.check(ctx.req.header('authorization'));
      if (typeof key !== 'string') await key;
    }
    if (ctx.req.path.includes('%')) requireDecodable(ctx.req.path);
    const call: Call = {
      ctx,
      requestId,
      param: (name) => checkParameter(spec, name, ctx.req.param(name) ?? ''),
      query: spec.query === undefined ? undefined : checkQuery(ctx, spec),
      body: spec.body === undefined || spec.bodyOwn === true ? undefined : await readAndCheck(ctx, spec),
    };
    return response(await route.handle(call), requestId);
  } catch (error) {
    return problemResponse(error, requestId, deps.log);
  }
}

function requestIdOf(ctx: Context): string {
  const given = ctx.req.header('x-request-id');
  return given !== undefined && SANE_REQUEST_ID.test(given) ? given : newId('req');
}

function requireDecodable(path: string): void {
  try {
    decodeURIComponent(path);
  } catch {
    throw new ProblemError('malformed_path', 'the path is not correctly percent-encoded UTF-8');
  }
}

/** An id that cannot exist is not found; only where it would be made is it an error of its own. */
function checkParameter(spec: RouteSpec, name: string, value: string): string {
  const rule = PARAMETERS[name];
  if (rule === undefined || rule.form.test(value)) return value;
  if (spec.method === 'put') throw parameterProblem([{ parameter: name, detail: rule.description }]);
  throw new ProblemError(rule.code, `there is no such ${name}`);
}

function checkQuery(ctx: Context, spec: RouteSpec): unknown {
  const mark = ctx.req.url.indexOf('?');
  const given: Record<string, string> = {};
  if (mark >= 0) {
    for (const [name, value] of new URLSearchParams(ctx.req.url.slice(mark + 1))) {
      if (Object.hasOwn(given, name)) throw parameterProblem([{ parameter: name, detail: 'is given twice' }]);
      Object.defineProperty(given, name, { value, enumerable: true });
    }
  }
  const result = spec.query?.safeParse(given);
  if (result === undefined || result.success) return result?.data;
  throw parameterProblem(
    result.error.issues.flatMap((issue) =>
      issue.code === 'unrecognized_keys'
        ? issue.keys.map((parameter) => ({ parameter, detail: 'unknown parameter' }))
        : [{ parameter: String(issue.path[0] ?? ''), detail: detailOf(issue) }],
    ),
  );
}

async function readAndCheck(ctx: Context, spec: RouteSpec): Promise<unknown> {
  const bytes = await readBody(ctx, MAX_BODY_BYTES);
  if (bytes.length === 0 && spec.bodyOptional === true) return checkBody(Buffer.from('{}'), spec.body!);
  if (bytes.length > 0) requireJsonType(ctx);
  const value: unknown = checkBody(bytes, spec.body!);
  if (typeof value !== 'object') throw fieldProblem([{ pointer: '', detail: 'must be an object' }]);
  return value;
}

function response(reply: Reply, requestId: string): Response {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'x-request-id': requestId,
    ...reply.headers,
  };
  if (reply.raw !== undefined) return new Response(reply.raw, { status: reply.status, headers });
  if (reply.json !== undefined)
    return new Response(JSON.stringify(reply.json), { status: reply.status, headers });
  delete headers['content-type'];
  return new Response(null, { status: reply.status, headers });
}

/** Unknown paths, and known ones with another method. Below /v1 a stranger learns nothing but that a key is needed. */
async function elsewhere(
  ctx: Context,
  known: readonly { spec: RouteSpec; form: RegExp }[],
  deps: DispatchDeps,
): Promise<Response> {
  const requestId = requestIdOf(ctx);
  try {
    const here = known.filter(({ form }) => form.test(ctx.req.path)).map(({ spec }) => spec);
    const methods = new Set(here.map((spec) => spec.method.toUpperCase()));
    if (methods.has('GET')) methods.add('HEAD');
    const allow = [...methods, 'OPTIONS'].join(', ');
    if (ctx.req.method === 'OPTIONS' && here.length > 0)
      return response({ status: 204, headers: { allow } }, requestId);
    if (/^\/v1(?:\/|$)/.test(ctx.req.path) && !here.some((spec) => spec.open)) {
      await deps.auth.check(ctx.req.header('authorization'));
    }
    if (here.length === 0) throw new ProblemError('not_found', 'there is nothing at this path');
    throw new ProblemError('method_not_allowed', `${ctx.req.method.slice(0, 20)} is not among ${allow}`, {
      headers: { allow },
    });
  } catch (error) {
    return problemResponse(error, requestId, deps.log);
  }
}

function pathForm(path: string): RegExp {
  return new RegExp(`^${path.replaceAll(/[.]/g, '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}$`);
}
