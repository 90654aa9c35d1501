/**
 * The HTTP API, put together: one Hono app for Node's server (src/api/listen.ts) and for tests. Called by src/main.ts.
 * Reading path of an event: dispatch.ts → events.ts → domain/event-input.ts → intake.ts → db/events.ts.
 */
import { Hono } from 'hono';
import { createAuthenticator } from './auth.ts';
import { deadLetterRoutes } from './dead-letters.ts';
import { deliveryRoutes } from './deliveries.ts';
import type { ApiDeps } from './deps.ts';
import { mount } from './dispatch.ts';
import { secretRoutes } from './endpoint-secrets.ts';
import { endpointStateRoutes } from './endpoint-states.ts';
import { statsRoutes } from './endpoint-stats.ts';
import { testRoutes } from './endpoint-tests.ts';
import { endpointRoutes } from './endpoints.ts';
import { eventReadRoutes } from './event-reads.ts';
import { eventRoutes } from './events.ts';
import { createIntake } from './intake.ts';
import { keyRoutes } from './keys.ts';
import { openApiDocument } from './openapi.ts';
import { createRateLimit } from './rate-limit.ts';
import { replayRoutes } from './replays.ts';
import { createScans } from './scans.ts';
import { systemRoutes } from './system.ts';
import { tenantRoutes } from './tenants.ts';

export { purgeIdempotencyKeys } from '../db/idempotency.ts';
export { purgeExpiredSecrets } from '../db/secrets.ts';
export { ensureAdminKey } from './auth.ts';
export type { ApiDeps } from './deps.ts';

export interface Api {
  readonly app: Hono;
  /** Resolves when everything accepted is committed; call it after the server stopped listening. */
  close(): Promise<void>;
}

export function createApi(deps: ApiDeps): Api {
  const auth = createAuthenticator(deps.db);
  const intake = createIntake(deps);
  const scans = createScans(deps);
  const probing = createRateLimit({ burst: 60, perSecond: 10 });
  let document: object | undefined;

  const app = new Hono();
  const routes = [
    ...eventRoutes(deps, intake),
    ...eventReadRoutes(deps),
    ...tenantRoutes(deps, scans),
    ...endpointRoutes(deps, scans, probing),
    ...endpointStateRoutes(deps, scans),
    ...testRoutes(deps, probing),
    ...statsRoutes(deps),
    ...secretRoutes(deps, probing),
    ...deliveryRoutes(deps),
    ...deadLetterRoutes(deps),
    ...replayRoutes(deps),
    ...keyRoutes(deps, auth),
    ...systemRoutes(deps, () => {
      document ??= openApiDocument();
      return document;
    }),
  ];
  mount(app, routes, { auth, log: deps.log });

  return {
    app,
    async close() {
      await intake.close();
      await scans.close();
    },
  };
}
