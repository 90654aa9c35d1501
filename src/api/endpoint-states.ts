/** Endpoints paused, resumed, enabled, disabled: one guarded move each (migrations/functions/endpoints.sql). */
import { z } from '@hono/zod-openapi';
import { type EndpointMove, endedSince, moveEndpoint } from '../db/endpoint-states.ts';
import { getEndpoint } from '../db/endpoints.ts';
import { ProblemError } from '../errors.ts';
import type { ApiDeps } from './deps.ts';
import { EnabledEndpoint, Endpoint, endpointView } from './endpoint-schemas.ts';
import { noEndpoint } from './missing.ts';
import { type BoundRoute, bind, route } from './route.ts';
import type { Scans } from './scans.ts';

const base = {
  tag: 'Endpoints',
  method: 'post',
  body: z.strictObject({}),
  bodyOptional: true,
  status: 200,
  schema: Endpoint,
  answer: 'The endpoint',
} as const;
const path = '/v1/tenants/{tenant}/endpoints/{endpoint}';

export const endpointStateSpecs = {
  enable: route({
    ...base,
    path: `${path}/enable`,
    id: 'enableEndpoint',
    summary: 'Enable a disabled (or paused) endpoint',
    description:
      'Tried at once, and its time without success counts anew. What it missed is not sent by itself: `missed_since` says since when, `recover` is the request that replays it.',
    schema: EnabledEndpoint,
    answer: 'The endpoint, and what it missed',
  }),
  disable: route({
    ...base,
    path: `${path}/disable`,
    id: 'disableEndpoint',
    summary: 'Disable an endpoint',
    description:
      'Its unfinished deliveries end as `cancelled` (endpoint_disabled) within seconds; new events pass it by.',
  }),
  pause: route({
    ...base,
    path: `${path}/pause`,
    id: 'pauseEndpoint',
    summary: 'Pause an endpoint',
    problems: ['endpoint_disabled'],
    description: 'Deliveries wait as `held`. Their deadlines run on.',
  }),
  resume: route({
    ...base,
    path: `${path}/resume`,
    id: 'resumeEndpoint',
    summary: 'Resume an endpoint',
    problems: ['endpoint_disabled'],
    description:
      'Ends a pause, also one that the receiver asked for with Retry-After. What waits is sent at a careful rate.',
  }),
};

export function endpointStateRoutes(deps: ApiDeps, scans: Scans): BoundRoute[] {
  const move = async (tenant: string, endpoint: string, to: EndpointMove) => {
    const before = to === 'enable' ? await getEndpoint(deps.db, tenant, endpoint) : null;
    const state = await moveEndpoint(deps.db, tenant, endpoint, to, to === 'disable' ? 'operator' : null);
    if (state === null) noEndpoint();
    if (state === 'disabled' && (to === 'pause' || to === 'resume'))
      throw new ProblemError('endpoint_disabled', `endpoint ${endpoint} is disabled`);
    deps.tellHealth?.();
    if (state === 'disabled') await scans.endWorkOf([endpoint]);
    const row = (await getEndpoint(deps.db, tenant, endpoint)) ?? noEndpoint();
    const json = endpointView(row);
    if (to !== 'enable') return { status: 200, json };
    const since = before?.state === 'disabled' ? before.disabled_at : null;
    const oldest = since === null ? null : await endedSince(deps.db, endpoint, since);
    return {
      status: 200,
      json: { ...json, missed_since: since, recover: recoverHint(tenant, endpoint, oldest ?? since) },
    };
  };
  return (['enable', 'disable', 'pause', 'resume'] as const).map((to) =>
    bind(endpointStateSpecs[to], ({ param }) => move(param('tenant'), param('endpoint'), to)),
  );
}

/** From the oldest delivery that disabling ended on: those were made before. */
function recoverHint(tenant: string, endpoint: string, since: Date | null) {
  if (since === null) return null;
  const path = `/v1/tenants/${encodeURIComponent(tenant)}/endpoints/${endpoint}/recover`;
  return { method: 'POST', path, body: { since, missed: true } };
}
