/**
 * Every recorded attempt passes here once: the canonical log line, metrics, what a tenant's events cost, and the end
 * of an endpoint that said 410. Called by send.ts and dispatch.ts.
 */
import { disableGone } from '../db/endpoint-health.ts';
import { scanSoon } from '../db/endpoints.ts';
import type { LoadedDelivery } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { MemberOutcome } from './outcome.ts';

export interface Observer {
  observe(row: LoadedDelivery, outcome: MemberOutcome & { kind: 'recorded' }): void;
  /** Expected worker time of one delivery of a tenant, ms: a moving average, 5 before anything is known. */
  costOf(tenant: string): number;
}

const MAX_TENANTS = 20_000;
const SCAN_BATCH = 1_000;

interface ObserverDeps {
  db: Pool;
  log: Log;
  metrics: Metrics;
  /** Rows are due for the scanner, of this process or another. */
  scan: () => void;
}

export function createObserver(deps: ObserverDeps): Observer {
  const costs = new Map<string, number>();
  return {
    costOf: (tenant) => costs.get(tenant) ?? 5,
    observe(row, outcome) {
      deps.metrics.attempts.inc({ class: outcome.class });
      deps.metrics.attemptSeconds.observe(outcome.durationMs / 1_000);
      if (costs.size >= MAX_TENANTS) costs.clear();
      costs.set(
        row.tenant,
        Math.max(1, (costs.get(row.tenant) ?? outcome.durationMs) * 0.95 + outcome.durationMs * 0.05),
      );
      const level = outcome.state === 'delivered' ? 'debug' : 'info';
      if (deps.log.isLevelEnabled(level)) {
        deps.log[level](
          {
            delivery: row.delivery,
            event: row.event,
            endpoint: row.endpoint,
            tenant: row.tenant,
            type: row.event_type,
            attempt: outcome.n,
            class: outcome.class,
            status: outcome.status,
            ms: Math.round(outcome.durationMs),
            state: outcome.state,
            next: outcome.dueAtMs === null ? undefined : new Date(outcome.dueAtMs).toISOString(),
          },
          'attempt',
        );
      }
      if (outcome.class === 'http_410') {
        endGone(deps, row, outcome.revision).catch((error: unknown) =>
          deps.log.error(
            { err: error, endpoint: row.endpoint },
            'an endpoint that is gone could not be disabled',
          ),
        );
      }
    },
  };
}

async function endGone(deps: ObserverDeps, row: LoadedDelivery, revision: number): Promise<void> {
  if (!(await disableGone(deps.db, row.endpoint, revision))) return;
  deps.log.warn(
    { endpoint: row.endpoint, tenant: row.tenant },
    'endpoint disabled: its receiver answered 410 Gone',
  );
  while ((await scanSoon(deps.db, row.endpoint, SCAN_BATCH)) === SCAN_BATCH);
  deps.scan();
}
