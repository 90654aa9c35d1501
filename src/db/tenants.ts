/** Tenants. A deleted one keeps its row: ids in events and logs still mean something. */
import type { Db } from './pool.ts';

export interface TenantRow {
  id: string;
  name: string | null;
  notify_emails: string[];
  weight: number;
  created_at: Date;
  updated_at: Date;
}

export interface TenantFields {
  name: string | null;
  notify_emails: readonly string[];
  weight: number;
}

const COLUMNS = 'id, name, notify_emails, weight, created_at, updated_at';

/** Creates the tenant, or gives an existing one exactly these fields; a deleted one comes back. */
export async function putTenant(
  db: Db,
  id: string,
  fields: TenantFields,
): Promise<TenantRow & { created: boolean }> {
  const result = await db.query({
    name: 'put_tenant',
    text: `with before as (
        select deleted_at from posthaste.tenants where id = $1
      ), sequence as (
        insert into posthaste.tenant_sequences (tenant) values ($1) on conflict do nothing
      )
      insert into posthaste.tenants (id, shard, name, notify_emails, weight)
      values ($1, get_byte(sha256(convert_to($1, 'UTF8')), 0) % 16, $2, $3, $4)
      on conflict (id) do update set name = excluded.name, notify_emails = excluded.notify_emails, weight = excluded.weight,
        updated_at = now(), deleted_at = null,
        created_at = case when tenants.deleted_at is null then tenants.created_at else now() end
      returning ${COLUMNS}, not exists (select from before where deleted_at is null) as created`,
    values: [id, fields.name, fields.notify_emails, fields.weight],
  });
  return result.rows[0];
}

/** Changes the given fields only. Null: no such tenant. */
export async function patchTenant(
  db: Db,
  id: string,
  fields: Partial<TenantFields>,
): Promise<TenantRow | null> {
  const result = await db.query({
    name: 'patch_tenant',
    text: `update posthaste.tenants set name = case when $2 then $3 else name end,
        notify_emails = coalesce($4, notify_emails), weight = coalesce($5, weight), updated_at = now()
      where id = $1 and deleted_at is null returning ${COLUMNS}`,
    values: [
      id,
      fields.name !== undefined,
      fields.name ?? null,
      fields.notify_emails ?? null,
      fields.weight ?? null,
    ],
  });
  return result.rows[0] ?? null;
}

export async function getTenant(db: Db, id: string): Promise<TenantRow | null> {
  const result = await db.query({
    name: 'get_tenant',
    text: `select ${COLUMNS} from posthaste.tenants where id = $1 and deleted_at is null`,
    values: [id],
  });
  return result.rows[0] ?? null;
}

/** Tenants after `after`, by id. */
export async function listTenants(db: Db, after: string | null, limit: number): Promise<TenantRow[]> {
  const result = await db.query({
    name: 'list_tenants',
    text: `select ${COLUMNS} from posthaste.tenants
      where deleted_at is null and ($1::text is null or id > $1) order by id limit $2`,
    values: [after, limit],
  });
  return result.rows;
}

/** False: no such tenant. Its endpoints go by deleteEndpointsOf, in the same transaction and after this. */
export async function deleteTenant(db: Db, id: string): Promise<boolean> {
  const result = await db.query({
    name: 'delete_tenant',
    text: 'update posthaste.tenants set deleted_at = now(), updated_at = now() where id = $1 and deleted_at is null',
    values: [id],
  });
  return result.rowCount === 1;
}
