/** Tenants: the producer's customers, under ids of the producer's choice. */
import { z } from '@hono/zod-openapi';
import { deleteEndpointsOf } from '../db/endpoints.ts';
import { withTransaction } from '../db/pool.ts';
import {
  deleteTenant,
  getTenant,
  listTenants,
  patchTenant,
  putTenant,
  type TenantRow,
} from '../db/tenants.ts';
import type { ApiDeps } from './deps.ts';
import { noTenant } from './missing.ts';
import { ID_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import type { Scans } from './scans.ts';
import { notifyEmails, page, pageOf, text, timestamp } from './schemas.ts';

const weight = z.int().min(1).max(100).openapi({ description: 'Share of the relay against other tenants' });
const TenantInput = z
  .strictObject({
    name: text(256).nullable().default(null),
    notify_emails: notifyEmails.default([]),
    weight: weight.default(1),
  })
  .openapi('TenantInput');
const TenantChange = z
  .strictObject({
    name: text(256).nullable().optional(),
    notify_emails: notifyEmails.optional(),
    weight: weight.optional(),
  })
  .openapi('TenantChange');
const Tenant = z
  .object({
    id: z.string(),
    name: z.string().nullable(),
    notify_emails: z.array(z.string()),
    weight: z.int(),
    created_at: timestamp,
    updated_at: timestamp,
  })
  .openapi('Tenant');

const base = { tag: 'Tenants', status: 200, schema: Tenant, answer: 'The tenant' } as const;
const path = '/v1/tenants/{tenant}';

export const tenantSpecs = {
  put: route({
    ...base,
    method: 'put',
    path,
    id: 'putTenant',
    summary: 'Create or replace a tenant',
    description:
      '201 when it was created (or had been deleted), 200 when it was replaced. Left-out fields get their defaults.',
    body: TenantInput,
    bodyOptional: true,
  }),
  get: route({ ...base, method: 'get', path, id: 'getTenant', summary: 'Show a tenant' }),
  patch: route({
    ...base,
    method: 'patch',
    path,
    id: 'patchTenant',
    summary: 'Change a tenant',
    body: TenantChange,
  }),
  remove: route({
    ...base,
    method: 'delete',
    path,
    id: 'deleteTenant',
    summary: 'Delete a tenant with its endpoints',
    description:
      'Unfinished deliveries end as `cancelled` within seconds. Events and attempts stay for their retention.',
    status: 204,
    schema: undefined as never,
    answer: 'Deleted',
  }),
  list: route({
    ...base,
    method: 'get',
    path: '/v1/tenants',
    id: 'listTenants',
    summary: 'List tenants, by id',
    query: z.strictObject(PAGE),
    schema: page(Tenant),
    answer: 'A page of tenants',
    problems: ['cursor_invalid'],
  }),
};

export function tenantRoutes(deps: ApiDeps, scans: Scans): BoundRoute[] {
  const { db } = deps;
  return [
    bind(tenantSpecs.put, async ({ param, body }) => {
      const tenant = param('tenant');
      const { created, ...row } = await putTenant(db, tenant, body);
      return {
        status: created ? 201 : 200,
        json: view(row),
        ...(created ? { headers: { location: `/v1/tenants/${encodeURIComponent(tenant)}` } } : {}),
      };
    }),
    bind(tenantSpecs.get, async ({ param }) => ({
      status: 200,
      json: view((await getTenant(db, param('tenant'))) ?? noTenant()),
    })),
    bind(tenantSpecs.patch, async ({ param, body }) => {
      const { name, notify_emails, weight } = body;
      const fields = {
        ...(name === undefined ? {} : { name }),
        ...(notify_emails === undefined ? {} : { notify_emails }),
        ...(weight === undefined ? {} : { weight }),
      };
      return { status: 200, json: view((await patchTenant(db, param('tenant'), fields)) ?? noTenant()) };
    }),
    bind(tenantSpecs.remove, async ({ param }) => {
      const tenant = param('tenant');
      const endpoints = await withTransaction(db, async (client) => {
        if (!(await deleteTenant(client, tenant))) noTenant();
        return deleteEndpointsOf(client, tenant); // sees those whose creation the line above waited for
      });
      await scans.endWorkOf(endpoints);
      return { status: 204 };
    }),
    bind(tenantSpecs.list, async ({ query }) => {
      const { after, cursor } = paging(query.cursor, 'tenants', [], [ID_FORM]);
      const rows = await listTenants(db, after?.[0] ?? null, query.limit + 1);
      return { status: 200, json: pageOf(rows, query.limit, view, (last) => cursor([last.id])) };
    }),
  ];
}

/** For every route below a tenant that would otherwise answer an empty list for a tenant that does not exist. */
export async function requireTenant(deps: ApiDeps, tenant: string): Promise<void> {
  if ((await getTenant(deps.db, tenant)) === null) noTenant();
}

function view(row: TenantRow) {
  return {
    id: row.id,
    name: row.name,
    notify_emails: row.notify_emails,
    weight: row.weight,
    created_at: row.created_at,
    updated_at: row.updated_at,
  };
}
