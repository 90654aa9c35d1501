/**
 * Every recorded attempt passes here once: the canonical log line, metrics, what a tenant's events cost, and a nudge
 * for the health step. Called by send.ts, dispatch.ts and pump.ts.
 */
import type { LoadedDelivery } from '../db/load.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { MemberOutcome } from './outcome.ts';

export interface Observer {
  observe(row: LoadedDelivery, outcome: MemberOutcome & { kind: 'recorded' }): void;
  /** Expected worker time of one delivery of a tenant, ms: a moving average, 5 before anything is known. */
  costOf(tenant: string): number;
}

const MAX_TENANTS = 20_000;

interface ObserverDeps {
  log: Log;
  metrics: Metrics;
  /** There may be news of an endpoint. */
  tellHealth: () => void;
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
      // The record has left a note for the health step (or nothing, when all is well).
      if (outcome.class !== 'ok') deps.tellHealth();
    },
  };
}
