/** Endpoints as the API writes and shows them. What a sender needs of one is read by src/db/load.ts. */
import { type EndpointHealthRow, HEALTH_COLUMNS } from './health.ts';
import type { Db } from './pool.ts';

/** Settings as stored; all of them, checked and sealed by src/api/endpoint-settings.ts. */
export interface EndpointSettings {
  url: string;
  description: string | null;
  eventTypes: readonly string[] | null;
  retryPolicy: unknown;
  retryPolicyGiven: unknown; // null: the default
  deadlineMs: number;
  timeoutMs: number;
  cap: number;
  rateLimit: number | null; // per second; null: none
  catchUpShare: number;
  headersSealed: Buffer | null;
  headersShown: unknown;
  tlsSealed: Buffer | null;
  tlsShown: unknown;
  traceparent: boolean;
  notifyEmails: readonly string[];
}

export interface EndpointRow extends Omit<EndpointHealthRow, 'state'> {
  id: string;
  url: string;
  description: string | null;
  event_types: string[] | null;
  state: 'active' | 'paused' | 'disabled';
  disabled_reason: string | null;
  disabled_at: Date | null; // last time; kept when it is enabled again
  revision: number;
  retry_policy: unknown;
  retry_policy_given: unknown;
  deadline_ms: number;
  timeout_ms: number;
  cap: number;
  catch_up_share: number;
  headers_sealed: Buffer | null;
  headers_shown: { name: string; length: number }[];
  tls_sealed: Buffer | null;
  tls_shown: unknown;
  traceparent: boolean;
  notify_emails: string[];
  created_at: Date;
  updated_at: Date;
}

const COLUMNS = `e.id, e.url, e.description, e.event_types, e.disabled_reason, nullif(e.cancel_before, '-infinity') as disabled_at, e.revision, e.retry_policy,
  e.retry_policy_given, e.deadline_ms, e.timeout_ms, s.cap, e.headers_sealed, e.headers_shown, e.tls_sealed, e.tls_shown,
  e.traceparent, e.notify_emails, e.created_at, e.updated_at, s.catch_up_share, ${HEALTH_COLUMNS}`;
const FROM = `from posthaste.endpoints e join posthaste.endpoint_state s on s.endpoint = e.id
  left join posthaste.endpoint_health h on h.endpoint = e.id`;

/** Holds the tenant against deletion until the transaction ends. False: no such tenant. */
export async function shareTenant(db: Db, tenant: string): Promise<boolean> {
  const result = await db.query({
    name: 'share_tenant',
    text: 'select from posthaste.tenants where id = $1 and deleted_at is null for share',
    values: [tenant],
  });
  return result.rowCount === 1;
}

export async function insertEndpoint(
  db: Db,
  tenant: string,
  id: string,
  s: EndpointSettings,
): Promise<EndpointRow> {
  await db.query({
    name: 'insert_endpoint',
    text: `with e as (
        insert into posthaste.endpoints (id, tenant, url, description, event_types, retry_policy, retry_policy_given, deadline_ms,
          timeout_ms, headers_sealed, headers_shown, tls_sealed, tls_shown, traceparent, notify_emails)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) returning id, tenant
      )
      insert into posthaste.endpoint_state (endpoint, tenant, shard, cap, rate_limit, catch_up_share)
      select e.id, e.tenant, t.shard, $16, $17, $18 from e join posthaste.tenants t on t.id = e.tenant`,
    values: [id, tenant, ...values(s)],
  });
  return (await getEndpoint(db, tenant, id)) as EndpointRow;
}

/** Replaces every setting; grows the revision. Call it in a transaction that holds the row (lockEndpoint). */
export async function updateEndpoint(
  db: Db,
  tenant: string,
  id: string,
  s: EndpointSettings,
): Promise<EndpointRow | null> {
  await db.query({
    name: 'update_endpoint',
    text: `with e as (
        update posthaste.endpoints set url = $3, description = $4, event_types = $5, retry_policy = $6, retry_policy_given = $7,
          deadline_ms = $8, timeout_ms = $9, headers_sealed = $10, headers_shown = $11, tls_sealed = $12, tls_shown = $13,
          traceparent = $14, notify_emails = $15, revision = revision + 1, updated_at = now()
        where id = $1 and tenant = $2 and state <> 'deleted' returning id
      )
      update posthaste.endpoint_state x set cap = $16, rate_limit = $17, catch_up_share = $18 from e
      where x.endpoint = e.id and (x.cap, coalesce(x.rate_limit, 0), x.catch_up_share) is distinct from ($16, coalesce($17, 0)::real, $18::real)`,
    values: [id, tenant, ...values(s)],
  });
  return getEndpoint(db, tenant, id);
}

function values(s: EndpointSettings): unknown[] {
  return [
    s.url,
    s.description,
    s.eventTypes,
    JSON.stringify(s.retryPolicy),
    s.retryPolicyGiven === null ? null : JSON.stringify(s.retryPolicyGiven),
    s.deadlineMs,
    s.timeoutMs,
    s.headersSealed,
    JSON.stringify(s.headersShown),
    s.tlsSealed,
    s.tlsShown === null ? null : JSON.stringify(s.tlsShown),
    s.traceparent,
    s.notifyEmails,
    s.cap,
    s.rateLimit,
    s.catchUpShare,
  ];
}

export async function getEndpoint(db: Db, tenant: string, id: string): Promise<EndpointRow | null> {
  const result = await db.query({
    name: 'get_endpoint',
    text: `select ${COLUMNS} ${FROM} where e.id = $1 and e.tenant = $2 and e.state <> 'deleted'`,
    values: [id, tenant],
  });
  return result.rows[0] ?? null;
}

/**
 * Holds an endpoint against other changes until the transaction ends. Read it after this, not with it: a row that is
 * joined to a locked one is as old as the statement, not as the lock.
 */
export async function lockEndpoint(db: Db, tenant: string, id: string): Promise<boolean> {
  const result = await db.query({
    name: 'lock_endpoint',
    text: `select from posthaste.endpoints where id = $1 and tenant = $2 and state <> 'deleted' for no key update`,
    values: [id, tenant],
  });
  return result.rowCount === 1;
}

/** Newest first. */
export async function listEndpoints(
  db: Db,
  tenant: string,
  state: string | null,
  before: string | null,
  limit: number,
): Promise<EndpointRow[]> {
  const result = await db.query({
    text: `select ${COLUMNS} ${FROM}
      where e.tenant = $1 and e.state <> 'deleted' and ($2::text is null or e.state = $2) and ($3::text is null or e.id < $3)
      order by e.id desc limit $4`,
    values: [tenant, state, before, limit],
  });
  return result.rows;
}

/** Deletes all endpoints of a tenant; answers their ids. */
export async function deleteEndpointsOf(db: Db, tenant: string): Promise<string[]> {
  const result = await db.query({
    name: 'delete_endpoints_of',
    text: `select e.id, posthaste.move_endpoint($1, e.id, 'delete', null) from (
        select id from posthaste.endpoints where tenant = $1 and state <> 'deleted' order by id) e`,
    values: [tenant],
  });
  return result.rows.map((row) => row.id);
}

/** Grows the revision: something that a sender must see has changed. */
export async function touchEndpoint(db: Db, id: string): Promise<void> {
  await db.query({
    name: 'touch_endpoint',
    text: 'update posthaste.endpoints set revision = revision + 1, updated_at = now() where id = $1',
    values: [id],
  });
}

/** Lets the scanner look at up to `limit` unfinished deliveries of the endpoint now. Answers how many were left. */
export async function scanSoon(db: Db, endpoint: string, limit: number): Promise<number> {
  const result = await db.query({
    name: 'scan_soon',
    text: `update posthaste.work w set scan_at = clock_timestamp() from (
        select delivery from posthaste.work
        where endpoint = $1 and state in ('ready', 'retrying', 'held') and scan_at > clock_timestamp()
        order by delivery limit $2 for update skip locked) x
      where w.delivery = x.delivery`,
    values: [endpoint, limit],
  });
  return result.rowCount ?? 0;
}
