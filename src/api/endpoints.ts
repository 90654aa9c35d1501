/** Endpoints: made, listed, changed, deleted. States are in endpoint-states.ts, secrets in endpoint-secrets.ts. */
import { z } from '@hono/zod-openapi';
import { moveEndpoint } from '../db/endpoint-states.ts';
import {
  getEndpoint,
  insertEndpoint,
  listEndpoints,
  lockEndpoint,
  shareTenant,
  updateEndpoint,
} from '../db/endpoints.ts';
import { tellHealth } from '../db/health.ts';
import { withTransaction } from '../db/pool.ts';
import { insertSecret } from '../db/secrets.ts';
import { newId } from '../ids.ts';
import type { ApiDeps } from './deps.ts';
import { Endpoint, EndpointChange, EndpointInput, endpointView, NewEndpoint } from './endpoint-schemas.ts';
import { settingsFrom } from './endpoint-settings.ts';
import { noEndpoint, noTenant } from './missing.ts';
import { ID_FORM, paging } from './paging.ts';
import type { RateLimit } from './rate-limit.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import type { Scans } from './scans.ts';
import { page, pageOf } from './schemas.ts';
import { sealSecret } from './sealing.ts';
import { secretFrom, secretView } from './secret-input.ts';
import { requireTenant } from './tenants.ts';

const base = { tag: 'Endpoints', status: 200, schema: Endpoint, answer: 'The endpoint' } as const;
const path = '/v1/tenants/{tenant}/endpoints';
const one = `${path}/{endpoint}`;
const LIVING = ['active', 'paused', 'disabled'] as const;

export const endpointSpecs = {
  create: route({
    ...base,
    method: 'post',
    path,
    id: 'createEndpoint',
    summary: 'Create an endpoint',
    body: EndpointInput,
    status: 201,
    answer: 'The endpoint with its signing secret',
    schema: NewEndpoint,
    problems: ['rate_limited'],
  }),
  list: route({
    ...base,
    method: 'get',
    path,
    id: 'listEndpoints',
    summary: 'List endpoints, newest first',
    query: z.strictObject({ ...PAGE, state: z.enum(LIVING).optional() }),
    answer: 'A page of endpoints',
    schema: page(Endpoint),
    problems: ['cursor_invalid'],
  }),
  get: route({ ...base, method: 'get', path: one, id: 'getEndpoint', summary: 'Show an endpoint' }),
  patch: route({
    ...base,
    method: 'patch',
    path: one,
    id: 'patchEndpoint',
    summary: 'Change an endpoint',
    description:
      'Left-out fields stay. `limits` is merged; `headers`, `tls` and `retry_policy` are replaced as a whole.',
    body: EndpointChange,
    problems: ['rate_limited'],
  }),
  remove: route({
    ...base,
    method: 'delete',
    path: one,
    id: 'deleteEndpoint',
    summary: 'Delete an endpoint',
    description: 'Its unfinished deliveries end as `cancelled` within seconds.',
    status: 204,
    answer: 'Deleted',
    schema: undefined as never,
  }),
};

export function endpointRoutes(deps: ApiDeps, scans: Scans, probing: RateLimit): BoundRoute[] {
  const { db } = deps;

  const shown = async (tenant: string, endpoint: string) => ({
    status: 200,
    json: endpointView((await getEndpoint(db, tenant, endpoint)) ?? noEndpoint()),
  });

  return [
    bind(endpointSpecs.create, async ({ param, body }) => {
      const tenant = param('tenant');
      await requireTenant(deps, tenant);
      probing.take(tenant);
      const id = newId('ep');
      const { secret: ownSecret, secret_kind, ...fields } = body;
      const secret = secretFrom(ownSecret, secret_kind, 'hmac', 'secret_kind');
      const settings = settingsFrom(deps, tenant, id, null, fields);
      const sealed = sealSecret(deps.config.masterKeys, tenant, id, secret);
      const row = await withTransaction(db, async (client) => {
        if (!(await shareTenant(client, tenant))) noTenant();
        const made = await insertEndpoint(client, tenant, id, settings);
        await insertSecret(client, tenant, id, sealed);
        return made;
      });
      return {
        status: 201,
        json: { ...endpointView(row), ...secretView(sealed.id, secret) },
        headers: { location: `/v1/tenants/${encodeURIComponent(tenant)}/endpoints/${id}` },
      };
    }),
    bind(endpointSpecs.list, async ({ param, query }) => {
      const tenant = param('tenant');
      const state = query.state ?? null;
      const { after, cursor } = paging(query.cursor, 'endpoints', [tenant, state], [ID_FORM]);
      await requireTenant(deps, tenant);
      const rows = await listEndpoints(db, tenant, state, after?.[0] ?? null, query.limit + 1);
      return { status: 200, json: pageOf(rows, query.limit, endpointView, (last) => cursor([last.id])) };
    }),
    bind(endpointSpecs.get, ({ param }) => shown(param('tenant'), param('endpoint'))),
    bind(endpointSpecs.patch, async ({ param, body }) => {
      const tenant = param('tenant');
      const endpoint = param('endpoint');
      if (body.url !== undefined) probing.take(tenant);
      const row = await withTransaction(db, async (client) => {
        if (!(await lockEndpoint(client, tenant, endpoint))) noEndpoint();
        const before = (await getEndpoint(client, tenant, endpoint)) ?? noEndpoint();
        const settings = settingsFrom(deps, tenant, endpoint, before, body);
        if (body.url !== undefined || body.headers !== undefined || body.tls !== undefined)
          await tellHealth(client, endpoint, 'edit');
        return updateEndpoint(client, tenant, endpoint, settings);
      });
      deps.tellHealth?.();
      return { status: 200, json: endpointView(row ?? noEndpoint()) };
    }),
    bind(endpointSpecs.remove, async ({ param }) => {
      const endpoint = param('endpoint');
      if ((await moveEndpoint(db, param('tenant'), endpoint, 'delete')) === null) noEndpoint();
      await scans.endWorkOf([endpoint]);
      return { status: 204 };
    }),
  ];
}
