/** Tenants, endpoints and waiting events by the thousand, straight into the database. */
import { randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { SECRET_PURPOSE } from '../../src/activities/prepare.ts';
import { normalizeRetryPolicy } from '../../src/domain/retry-policy.ts';
import { newId } from '../../src/ids.ts';
import { sealingAad } from '../../src/secrets.ts';
import { masterKeys } from '../../test/support/seed.ts';

export interface EndpointSeed {
  tenant: string;
  url: string;
  /** Slots; the product's default is 10. */
  cap?: number;
}

const CHUNK = 1_000;

/** Makes the tenants too, one shard after the other. Retry policy, deadline and timeout are the product's defaults. */
export async function seedEndpoints(db: Pool, seeds: readonly EndpointSeed[]): Promise<void> {
  const checked = normalizeRetryPolicy(undefined);
  if (!checked.ok) throw new Error(checked.detail);
  const tenants = [...new Set(seeds.map((seed) => seed.tenant))];
  await db.query(
    `insert into posthaste.tenants (id, shard) select t, (n % 16)::int from unnest($1::text[]) with ordinality x (t, n)`,
    [tenants],
  );
  await db.query('insert into posthaste.tenant_sequences (tenant) select * from unnest($1::text[])', [
    tenants,
  ]);
  for (let from = 0; from < seeds.length; from += CHUNK) {
    const rows = seeds.slice(from, from + CHUNK).map((seed) => {
      const [id, secret] = [newId('ep'), newId('sec')];
      const text = Buffer.from(`whsec_${randomBytes(32).toString('base64')}`);
      const sealed = masterKeys.seal(text, sealingAad(SECRET_PURPOSE, seed.tenant, id, secret));
      return { ...seed, id, secret, sealed, cap: seed.cap ?? 10 };
    });
    const column = <K extends keyof (typeof rows)[number]>(name: K) => rows.map((row) => row[name]);
    await db.query(
      `insert into posthaste.endpoints (id, tenant, url, retry_policy, deadline_ms)
       select id, tenant, url, $4, $5 from unnest($1::text[], $2::text[], $3::text[]) x (id, tenant, url)`,
      [column('id'), column('tenant'), column('url'), JSON.stringify(checked.policy), checked.deadlineMs],
    );
    await db.query(
      `insert into posthaste.endpoint_state (endpoint, tenant, cap, shard)
       select x.*, t.shard from unnest($1::text[], $2::text[], $3::int[]) x (endpoint, tenant, cap) join posthaste.tenants t on t.id = x.tenant`,
      [column('id'), column('tenant'), column('cap')],
    );
    await db.query(
      `insert into posthaste.endpoint_secrets (id, endpoint, tenant, kind, key_id, sealed)
       select id, endpoint, tenant, 'hmac', 't1', sealed from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) x (id, endpoint, tenant, sealed)`,
      [column('secret'), column('id'), column('tenant'), column('sealed')],
    );
  }
}

/** `count` events of about `bytes` each, round robin over the tenants, in transactions of `chunk`. Answers their ids. */
export async function enqueue(
  db: Pool,
  options: { tenants: readonly string[]; count: number; bytes: number; chunk?: number },
): Promise<{ id: string; tenant: string }[]> {
  const { tenants, count, bytes, chunk = 1_000 } = options;
  const made: { id: string; tenant: string }[] = [];
  for (let from = 0; from < count; from += chunk) {
    const { rows } = await db.query(
      `select t as tenant, posthaste.enqueue(t, 'bench.made', json_build_object('a', repeat('x', $4))) as id
       from generate_series($1::int, $2::int) g, lateral (select ($3::text[])[1 + g % cardinality($3::text[])] as t) x`,
      [from, Math.min(count, from + chunk) - 1, tenants, Math.max(0, bytes - 150)],
    );
    for (const { id, tenant } of rows) made.push({ id, tenant });
  }
  await db.query('analyze');
  return made;
}

/** Deliveries of an hour ago, delivered, with their attempts and events: what a system that has run for a while holds. */
export async function seedHistory(db: Pool, tenants: readonly string[], count: number): Promise<void> {
  const chunk = 50_000;
  for (let from = 0; from < count; from += chunk) {
    await db.query(
      `with made as materialized (
         select t.tenant, e.id as endpoint, date_trunc('milliseconds', now() - interval '1 hour' + g * interval '3 ms') as at,
           posthaste.id_random() as random, g
         from generate_series($1::int, $2::int) g,
           lateral (select ($3::text[])[1 + g % cardinality($3::text[])] as tenant) t,
           lateral (select e.id from posthaste.endpoints e where e.tenant = t.tenant limit 1) e
       ), ids as materialized (select m.*, posthaste.id_time(m.at) || m.random as id from made m),
       e as (
         insert into posthaste.events (tenant, created_at, id, type, raw, content_type, occurred_at, body)
         select tenant, at, 'evt_' || id, 'bench.old', false, 'application/json', at, convert_to(json_build_object('a', repeat('x', 850))::text, 'UTF8') from ids
       ), f as (
         insert into posthaste.event_fanouts (tenant, event_at, event, sequence, deliveries, fanned_out_at)
         select tenant, at, 'evt_' || id, -g - 1, 1, at from ids
       ), d as (
         insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at, kind, state, n, burned, generation, last_status, last_class)
         select 'dlv_' || id, tenant, endpoint, 'evt_' || id, at, 'bench.old', -g - 1, at, at, 'live', 'delivered', 1, 1, 1, 200, 'ok' from ids
       )
       insert into posthaste.attempts (delivery, n, started_at, id, tenant, endpoint, event, event_type, generation, duration_ms, status, class, phase,
         request_url, request_headers, request_bytes, head_bytes, response_headers, response_body, decision)
       select 'dlv_' || id, 1, at, 'att_' || id, tenant, endpoint, 'evt_' || id, 'bench.old', 1, 5, 200, 'ok', 'headers', 'http://127.0.0.1/old',
         repeat('h', 350), 1000, 400, '[["content-length","2"]]', 'ok', 'delivered' from ids`,
      [from, Math.min(count, from + chunk) - 1, tenants],
    );
  }
  await db.query('vacuum analyze');
}
