/** Signing secrets, sealed. Which secrets sign is decided here by expires_at alone; loadEndpoints reads the same. */
import type { Db } from './pool.ts';

export interface SecretRow {
  id: string;
  kind: 'hmac' | 'ed25519';
  sealed: Buffer;
  created_at: Date;
  expires_at: Date | null; // null: current
}

export interface NewSecret {
  id: string;
  kind: 'hmac' | 'ed25519';
  keyId: string; // the master key
  sealed: Buffer;
}

export async function insertSecret(
  db: Db,
  tenant: string,
  endpoint: string,
  secret: NewSecret,
): Promise<Date> {
  const result = await db.query({
    name: 'insert_secret',
    text: `insert into posthaste.endpoint_secrets (id, endpoint, tenant, kind, key_id, sealed, created_at)
      values ($1, $2, $3, $4, $5, $6, clock_timestamp()) returning created_at`,
    values: [secret.id, endpoint, tenant, secret.kind, secret.keyId, secret.sealed],
  });
  return result.rows[0].created_at;
}

/** The secrets that sign now: the current one first, then by what expires last. */
export async function listSecrets(db: Db, tenant: string, endpoint: string): Promise<SecretRow[]> {
  const result = await db.query({
    name: 'list_secrets',
    text: `select id, kind, sealed, created_at, expires_at from posthaste.endpoint_secrets
      where endpoint = $1 and tenant = $2 and (expires_at is null or expires_at > clock_timestamp())
      order by expires_at desc nulls first, created_at desc`,
    values: [endpoint, tenant],
  });
  return result.rows;
}

/** Ends the current secret after its grace; with grace 0 it is gone at once. Expired ones go too. */
export async function retireSecrets(
  db: Db,
  endpoint: string,
  graceMs: number,
  dropIds: readonly string[],
): Promise<void> {
  await db.query({
    name: 'retire_secrets',
    text: `with dropped as (
        delete from posthaste.endpoint_secrets
        where endpoint = $1 and (id = any ($3) or expires_at <= clock_timestamp() or (expires_at is null and $2::float8 = 0))
      )
      update posthaste.endpoint_secrets set expires_at = clock_timestamp() + $2 * interval '1 millisecond'
      where endpoint = $1 and expires_at is null and $2::float8 > 0`,
    values: [endpoint, graceMs, dropIds],
  });
}

/** Deletes secrets whose grace is over, everywhere. Call it every few minutes; answers how many went. */
export async function purgeExpiredSecrets(db: Db): Promise<number> {
  const result = await db.query({
    name: 'purge_expired_secrets',
    text: 'delete from posthaste.endpoint_secrets where expires_at <= clock_timestamp()',
  });
  return result.rowCount ?? 0;
}
