/** Every sealed value in the database, page by page, for re-sealing after a change of master keys. */
import type { Db } from './pool.ts';

/** Where a sealed value lives. `secret`: endpoint_secrets; the others are columns of endpoints. */
export type SealedKind = 'secret' | 'headers' | 'tls';

export interface SealedValue {
  kind: SealedKind;
  id: string; // of the secret, else of the endpoint
  tenant: string;
  endpoint: string;
  sealed: Buffer;
}

const PAGES: Record<SealedKind, string> = {
  secret: `select 'secret' as kind, id, tenant, endpoint, sealed from posthaste.endpoint_secrets where id > $1 order by id limit $2`,
  headers: `select 'headers' as kind, id, tenant, id as endpoint, headers_sealed as sealed from posthaste.endpoints
    where id > $1 and headers_sealed is not null order by id limit $2`,
  tls: `select 'tls' as kind, id, tenant, id as endpoint, tls_sealed as sealed from posthaste.endpoints
    where id > $1 and tls_sealed is not null order by id limit $2`,
};

/** The next values of a kind after `after` (an id; '' to begin). */
export async function sealedPage(
  db: Db,
  kind: SealedKind,
  after: string,
  limit: number,
): Promise<SealedValue[]> {
  return (await db.query({ name: `sealed_page_${kind}`, text: PAGES[kind], values: [after, limit] })).rows;
}

const WRITES: Record<SealedKind, string> = {
  secret: 'update posthaste.endpoint_secrets set sealed = $3, key_id = $4 where id = $1 and sealed = $2',
  headers: `update posthaste.endpoints set headers_sealed = $3 where id = $1 and headers_sealed = $2 and $4 <> ''`,
  tls: `update posthaste.endpoints set tls_sealed = $3 where id = $1 and tls_sealed = $2 and $4 <> ''`,
};

/** Puts `next` in the place of `value`, unless someone changed it meanwhile; answers whether it did. */
export async function replaceSealed(
  db: Db,
  value: SealedValue,
  next: Buffer,
  keyId: string,
): Promise<boolean> {
  const result = await db.query({
    name: `replace_sealed_${value.kind}`,
    text: WRITES[value.kind],
    values: [value.id, value.sealed, next, keyId],
  });
  return result.rowCount === 1;
}
