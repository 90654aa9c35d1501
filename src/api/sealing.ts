/**
 * Sealing and opening what an endpoint keeps secret. Each value is bound to its place by the AAD; the sender opens
 * the same (src/activities/prepare.ts; test/api/sealing.test.ts holds both together).
 */
import type { NewSecret, SecretRow } from '../db/secrets.ts';
import { formatSecret, parseSecret, type SigningSecret } from '../egress/sign.ts';
import { newId } from '../ids.ts';
import { type MasterKeys, sealingAad } from '../secrets.ts';

const SECRET_PURPOSE = 'endpoint_secret';
const HEADERS_PURPOSE = 'endpoint_headers';
const TLS_PURPOSE = 'endpoint_tls';

export interface TlsParts {
  cert?: string;
  key?: string;
  ca?: string;
}

export function sealSecret(
  keys: MasterKeys,
  tenant: string,
  endpoint: string,
  secret: SigningSecret,
): NewSecret {
  const id = newId('sec');
  const sealed = keys.seal(
    Buffer.from(formatSecret(secret)),
    sealingAad(SECRET_PURPOSE, tenant, endpoint, id),
  );
  return { id, kind: secret.kind, keyId: keys.ids[0] as string, sealed };
}

export function openSecret(
  keys: MasterKeys,
  tenant: string,
  endpoint: string,
  row: SecretRow,
): SigningSecret {
  return parseSecret(
    keys.open(row.sealed, sealingAad(SECRET_PURPOSE, tenant, endpoint, row.id)).toString('utf8'),
  );
}

export function sealHeaders(
  keys: MasterKeys,
  tenant: string,
  endpoint: string,
  headers: Readonly<Record<string, string>>,
): Buffer {
  return keys.seal(
    Buffer.from(JSON.stringify(headers)),
    sealingAad(HEADERS_PURPOSE, tenant, endpoint, endpoint),
  );
}

export function openHeaders(
  keys: MasterKeys,
  tenant: string,
  endpoint: string,
  sealed: Buffer,
): Record<string, string> {
  return JSON.parse(
    keys.open(sealed, sealingAad(HEADERS_PURPOSE, tenant, endpoint, endpoint)).toString('utf8'),
  );
}

export function sealTls(keys: MasterKeys, tenant: string, endpoint: string, parts: TlsParts): Buffer {
  return keys.seal(Buffer.from(JSON.stringify(parts)), sealingAad(TLS_PURPOSE, tenant, endpoint, endpoint));
}
