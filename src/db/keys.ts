/** API keys. Only digests are kept; src/api/auth.ts compares them. */
import type { Db } from './pool.ts';

export interface KeyRow {
  id: string;
  name: string;
  last4: string;
  created_at: Date;
}

export async function insertKey(
  db: Db,
  key: { id: string; digest: Buffer; name: string; last4: string },
): Promise<KeyRow> {
  const result = await db.query({
    name: 'insert_key',
    text: `insert into posthaste.api_keys (id, digest, name, last4) values ($1, $2, $3, $4)
      returning id, name, last4, created_at`,
    values: [key.id, key.digest, key.name, key.last4],
  });
  return result.rows[0];
}

/** Frees a digest for another id: the key of the environment may once have been made here. */
export async function deleteKeyByDigest(db: Db, digest: Buffer, exceptId: string): Promise<void> {
  await db.query({
    name: 'delete_key_by_digest',
    text: 'delete from posthaste.api_keys where digest = $1 and id <> $2',
    values: [digest, exceptId],
  });
}

/**
 * Makes this key the one with this id, whatever it was before. For the admin key, at start-up: several processes may do it at
 * once, and a digest that another inserts meanwhile is no conflict of the id; hence one after the other.
 */
export async function replaceKey(
  db: Db,
  key: { id: string; digest: Buffer; name: string; last4: string },
): Promise<void> {
  await db.query({
    name: 'replace_key',
    text: `with turn as materialized (select pg_advisory_xact_lock(hashtext('posthaste.replace_key')))
      insert into posthaste.api_keys (id, digest, name, last4) select $1::text, $2::bytea, $3::text, $4::text from turn
      on conflict (id) do update set digest = excluded.digest, name = excluded.name, last4 = excluded.last4, revoked_at = null
      where api_keys.digest <> excluded.digest or api_keys.revoked_at is not null`,
    values: [key.id, key.digest, key.name, key.last4],
  });
}

/** Digests of the living keys among these ids. */
export async function findKeys(db: Db, ids: readonly string[]): Promise<{ id: string; digest: Buffer }[]> {
  const result = await db.query({
    name: 'find_keys',
    text: 'select id, digest from posthaste.api_keys where id = any ($1) and revoked_at is null',
    values: [ids],
  });
  return result.rows;
}

/** Living keys after `after`, oldest first. */
export async function listKeys(db: Db, after: string | null, limit: number): Promise<KeyRow[]> {
  const result = await db.query({
    name: 'list_keys',
    text: `select id, name, last4, created_at from posthaste.api_keys
      where revoked_at is null and ($1::text is null or id > $1) order by id limit $2`,
    values: [after, limit],
  });
  return result.rows;
}

/** False when there is no such living key. */
export async function revokeKey(db: Db, id: string): Promise<boolean> {
  const result = await db.query({
    name: 'revoke_key',
    text: 'update posthaste.api_keys set revoked_at = now() where id = $1 and revoked_at is null',
    values: [id],
  });
  return result.rowCount === 1;
}
