/** What needs no key: is it alive, is it ready, what can it do, what do its problems mean. */
import { z } from '@hono/zod-openapi';
import type { ApiDeps } from './deps.ts';
import { indexPage, problemsPage } from './pages.ts';
import { type BoundRoute, bind, route } from './route.ts';

const base = { tag: 'System', method: 'get', open: true, status: 200 } as const;
const HTML = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
  'x-content-type-options': 'nosniff',
};

export const systemSpecs = {
  live: route({
    ...base,
    path: '/livez',
    id: 'live',
    summary: 'Whether the process answers',
    answer: 'It does',
    schema: z.object({ ok: z.literal(true) }),
  }),
  ready: route({
    ...base,
    path: '/readyz',
    id: 'ready',
    summary: 'Whether it can do its work',
    description: '503 with the same body when it cannot.',
    answer: 'It can',
    schema: z.object({ ok: z.boolean(), checks: z.any() }),
  }),
  metrics: route({
    ...base,
    path: '/metrics',
    id: 'metrics',
    summary: 'Metrics in the Prometheus text format',
    answer: 'Metrics',
    media: ['text/plain'],
  }),
  openapi: route({
    ...base,
    path: '/openapi.json',
    id: 'openapi',
    summary: 'This document',
    answer: 'OpenAPI 3.1',
    schema: z.any(),
  }),
  problems: route({
    ...base,
    path: '/problems',
    id: 'problems',
    summary: 'What each problem code means',
    answer: 'A page',
    media: ['text/html'],
  }),
  index: route({
    ...base,
    path: '/',
    id: 'index',
    summary: 'What this is',
    answer: 'A page',
    media: ['text/html'],
  }),
};

export function systemRoutes(deps: ApiDeps, openApi: () => unknown): BoundRoute[] {
  const routes = [
    bind(systemSpecs.live, async () => ({ status: 200, json: { ok: true } })),
    bind(systemSpecs.ready, async () => {
      const { ok, checks } = await deps.readiness();
      return { status: ok ? 200 : 503, json: { ok, checks } };
    }),
    bind(systemSpecs.openapi, async () => ({ status: 200, json: openApi() })),
    bind(systemSpecs.problems, async () => ({ status: 200, raw: problemsPage(), headers: HTML })),
    bind(systemSpecs.index, async () => ({
      status: 200,
      raw: deps.uiHtml === undefined ? indexPage() : await deps.uiHtml(),
      headers: HTML,
    })),
  ];
  const { metricsText } = deps;
  if (metricsText === undefined) return routes;
  return [
    ...routes,
    bind(systemSpecs.metrics, async () => ({
      status: 200,
      raw: await metricsText(),
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    })),
  ];
}
