/** Tenants, endpoints and events made directly in the database, for tests below the API. */
import { randomBytes } from 'node:crypto';
import { HEADERS_PURPOSE, SECRET_PURPOSE } from '../../src/activities/prepare.ts';
import type { Pool } from '../../src/db/pool.ts';
import { normalizeRetryPolicy } from '../../src/domain/retry-policy.ts';
import { newId } from '../../src/ids.ts';
import { type MasterKeys, parseMasterKeys, sealingAad } from '../../src/secrets.ts';

export const MASTER_KEYS_TEXT = `t1:${Buffer.alloc(32, 7).toString('base64')}`;
export const masterKeys: MasterKeys = parseMasterKeys(MASTER_KEYS_TEXT);

export async function seedTenant(db: Pool, tenant: string, weight = 1): Promise<void> {
  const shard = [...tenant].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 16, 0);
  await db.query(
    'insert into posthaste.tenants (id, shard, weight) values ($1, $2, $3) on conflict do nothing',
    [tenant, shard, weight],
  );
  await db.query('insert into posthaste.tenant_sequences (tenant) values ($1) on conflict do nothing', [
    tenant,
  ]);
}

export interface SeedEndpoint {
  url: string;
  types?: string[] | null;
  cap?: number;
  policy?: unknown;
  timeoutMs?: number;
  headers?: Record<string, string>;
}

export async function seedEndpoint(
  db: Pool,
  tenant: string,
  options: SeedEndpoint,
): Promise<{ id: string; secret: string }> {
  const id = newId('ep');
  const checked = normalizeRetryPolicy(options.policy);
  if (!checked.ok) throw new Error(`${checked.pointer}: ${checked.detail}`);
  const secretId = newId('sec');
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const headers =
    options.headers === undefined
      ? null
      : masterKeys.seal(
          Buffer.from(JSON.stringify(options.headers)),
          sealingAad(HEADERS_PURPOSE, tenant, id, id),
        );
  await db.query(
    `insert into posthaste.endpoints (id, tenant, url, event_types, retry_policy, deadline_ms, timeout_ms, headers_sealed) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      id,
      tenant,
      options.url,
      options.types ?? null,
      JSON.stringify(checked.policy),
      checked.deadlineMs,
      options.timeoutMs ?? 15_000,
      headers,
    ],
  );
  await db.query(
    'insert into posthaste.endpoint_state (endpoint, tenant, shard, cap) select $1, id, shard, $3 from posthaste.tenants where id = $2',
    [id, tenant, options.cap ?? 10],
  );
  const sealed = masterKeys.seal(Buffer.from(secret), sealingAad(SECRET_PURPOSE, tenant, id, secretId));
  await db.query(
    `insert into posthaste.endpoint_secrets (id, endpoint, tenant, kind, key_id, sealed) values ($1, $2, $3, 'hmac', 't1', $4)`,
    [secretId, id, tenant, sealed],
  );
  return { id, secret };
}

/** Enqueues as a producer would; answers the ids in order. */
export async function enqueueMany(
  db: Pool,
  tenant: string,
  type: string,
  count: number,
  from = 0,
): Promise<string[]> {
  const result = await db.query(
    `select posthaste.enqueue($1, $2, json_build_object('n', g)) as id from generate_series($3::int, $4::int) g order by g`,
    [tenant, type, from, from + count - 1],
  );
  return result.rows.map((row) => row.id);
}

/** Work rows for one endpoint without a relay: ready, alone, due now. */
export async function seedWork(db: Pool, tenant: string, endpoint: string, count: number): Promise<string[]> {
  const events = await enqueueMany(db, tenant, 'test.made', count);
  const result = await db.query(
    `insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard, kind, lane, state, due_at, deadline, scan_at)
     select 'dlv_' || posthaste.id_time(now()) || posthaste.id_random(), $1, $2, e.id, e.created_at, e.type, row_number() over (), date_trunc('milliseconds', now()),
       t.shard, 'live', 'first', 'ready', now(), now() + interval '1 hour', now()
     from posthaste.events e join posthaste.tenants t on t.id = e.tenant where e.tenant = $1 and e.id = any ($3) returning delivery`,
    [tenant, endpoint, events],
  );
  await db.query('delete from posthaste.outbox where tenant = $1', [tenant]);
  return result.rows.map((row) => row.delivery);
}
