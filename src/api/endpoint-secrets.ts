/**
 * Signing secrets of an endpoint: shown, and replaced without a gap. After a rotation the old secret goes on signing
 * beside the new one for its grace; several rotations may overlap, and every unexpired secret signs, five at most.
 */
import type { z } from '@hono/zod-openapi';
import { getEndpoint, lockEndpoint, touchEndpoint } from '../db/endpoints.ts';
import { tellHealth } from '../db/health.ts';
import { withTransaction } from '../db/pool.ts';
import { insertSecret, listSecrets, retireSecrets, type SecretRow } from '../db/secrets.ts';
import { MAX_SIGNING_SECRETS } from '../domain/headers.ts';
import { parseDuration } from '../domain/retry-policy.ts';
import type { SigningSecret } from '../egress/sign.ts';
import { fieldProblem, ProblemError } from '../errors.ts';
import type { ApiDeps } from './deps.ts';
import { Rotation, Secret } from './endpoint-schemas.ts';
import { noEndpoint } from './missing.ts';
import type { RateLimit } from './rate-limit.ts';
import { type BoundRoute, bind, route } from './route.ts';
import { openSecret, sealSecret } from './sealing.ts';
import { secretFrom, secretView } from './secret-input.ts';

const MAX_GRACE_MS = 30 * 24 * 3_600_000;
const path = '/v1/tenants/{tenant}/endpoints/{endpoint}/secret';
const base = { tag: 'Endpoints', status: 200, schema: Secret } as const;

export const secretSpecs = {
  get: route({
    ...base,
    method: 'get',
    path,
    id: 'getSecret',
    summary: 'Reveal the current signing secret',
    answer: 'The secret',
  }),
  rotate: route({
    ...base,
    method: 'post',
    path: `${path}/rotate`,
    id: 'rotateSecret',
    summary: 'Replace the signing secret',
    description:
      'The replaced secret goes on signing beside the new one for `grace`. At most five secrets sign at a time.',
    body: Rotation,
    bodyOptional: true,
    answer: 'The new secret',
    problems: ['too_many_secrets', 'rate_limited'],
  }),
};

export function secretRoutes(deps: ApiDeps, probing: RateLimit): BoundRoute[] {
  const { db } = deps;
  const keys = deps.config.masterKeys;
  return [
    bind(secretSpecs.get, async ({ param }) => {
      const [tenant, endpoint] = [param('tenant'), param('endpoint')];
      if ((await getEndpoint(db, tenant, endpoint)) === null) noEndpoint();
      const rows = await listSecrets(db, tenant, endpoint);
      const current = rows.find((row) => row.expires_at === null) as SecretRow;
      const secret = openSecret(keys, tenant, endpoint, current);
      return { status: 200, json: view(current.id, secret, current.created_at, rows) };
    }),
    bind(secretSpecs.rotate, async ({ param, body }) => {
      const [tenant, endpoint] = [param('tenant'), param('endpoint')];
      const graceMs = graceOf(body.grace);
      if ((await getEndpoint(db, tenant, endpoint)) === null) noEndpoint();
      probing.take(tenant);
      const answer = await withTransaction(db, async (client) => {
        if (!(await lockEndpoint(client, tenant, endpoint))) noEndpoint();
        const rows = await listSecrets(client, tenant, endpoint);
        const current = rows.find((row) => row.expires_at === null) as SecretRow;
        const secret = secretFrom(body.secret, body.kind, current.kind, 'kind');
        refuseReuse(
          rows.map((row) => openSecret(keys, tenant, endpoint, row)),
          secret,
        );
        const dropped = room(rows, graceMs, body.expire_oldest);
        await retireSecrets(client, endpoint, graceMs, dropped);
        const sealed = sealSecret(keys, tenant, endpoint, secret);
        const createdAt = await insertSecret(client, tenant, endpoint, sealed);
        await touchEndpoint(client, endpoint);
        await tellHealth(client, endpoint, 'edit');
        return view(sealed.id, secret, createdAt, await listSecrets(client, tenant, endpoint));
      });
      deps.tellHealth?.();
      return { status: 200, json: answer };
    }),
  ];
}

function graceOf(given: z.output<typeof Rotation>['grace']): number {
  const ms =
    typeof given === 'number'
      ? given * 1_000
      : /^\d+$/.test(given)
        ? Number(given) * 1_000
        : parseDuration(given);
  if (ms !== null && ms <= MAX_GRACE_MS) return ms;
  throw fieldProblem([
    { pointer: '/grace', detail: 'must be seconds or a duration such as "24h", at most 30 days' },
  ]);
}

function refuseReuse(active: readonly SigningSecret[], secret: SigningSecret): void {
  if (active.some((other) => other.kind === secret.kind && other.key.equals(secret.key))) {
    throw fieldProblem([{ pointer: '/secret', detail: 'is one of the endpoint already' }]);
  }
}

/** Ids of secrets that must go at once, so that five sign at most; a 409 problem when nobody allowed that. */
function room(rows: readonly SecretRow[], graceMs: number, expireOldest: boolean): string[] {
  const kept = graceMs === 0 ? rows.filter((row) => row.expires_at !== null) : [...rows];
  const excess = kept.length + 1 - MAX_SIGNING_SECRETS;
  if (excess <= 0) return [];
  const oldest = kept
    .filter((row) => row.expires_at !== null)
    .sort((a, b) => (a.expires_at as Date).getTime() - (b.expires_at as Date).getTime());
  if (expireOldest) return oldest.slice(0, excess).map((row) => row.id);
  const expiry = oldest[0]!.expires_at!.toISOString();
  throw new ProblemError(
    'too_many_secrets',
    `${MAX_SIGNING_SECRETS} secrets sign already; the oldest expires at ${expiry}`,
    { more: { oldest_expires_at: expiry } },
  );
}

function view(id: string, secret: SigningSecret, createdAt: Date, rows: readonly SecretRow[]) {
  return {
    ...secretView(id, secret),
    created_at: createdAt,
    previous: rows
      .filter((row) => row.expires_at !== null)
      .map((row) => ({
        secret_id: row.id,
        secret_kind: row.kind,
        created_at: row.created_at,
        expires_at: row.expires_at,
      })),
  };
}
