/** Slow chores of a relay process: partitions ahead, old days, tenants' weights, gauges. */

import { oldestAgeMs } from '../db/outbox.ts';
import { ensurePartitions } from '../db/partitions.ts';
import type { Pool } from '../db/pool.ts';
import { countLiving, countLivingEndpoints, scanDisown } from '../db/scan.ts';
import { countEndpoints, countHeld, countWork, loadWeights } from '../db/upkeep.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { Starter } from '../temporal/starter.ts';
import type { Leases } from './leases.ts';
import type { Relay } from './relay.ts';
import { retire } from './retention.ts';

export interface UpkeepOptions {
  db: Pool;
  log: Log;
  leases: Leases;
  living: { refresh(count: number): void };
  livingEndpoints: { refresh(count: number): void };
  metrics: Metrics;
  weights: { of: Map<string, number> };
  starter: Starter;
  relay: Relay;
}

const SECOND = 1_000;
/** Every label is there from the start: a series that appears with the first outage can't be alerted on. */
const HEALTHS = ['closed', 'open', 'half_open', 'recovering', 'misconfigured', 'paused'] as const;

export function startUpkeep(options: UpkeepOptions): { stop(): Promise<void> } {
  const { db, log } = options;
  const every = (ms: number, name: string, chore: () => Promise<unknown>) => {
    let running: Promise<unknown> = Promise.resolve();
    let busy = false;
    const run = (): void => {
      if (busy) return;
      busy = true;
      running = chore()
        .catch((error: unknown) => log.warn({ err: error, chore: name }, 'a chore failed; it is tried again'))
        .finally(() => {
          busy = false;
        });
    };
    run();
    const timer = setInterval(run, ms);
    return async () => {
      clearInterval(timer);
      await running;
    };
  };
  const stops = [
    every(SECOND, 'gauges', async () => {
      const living = await countLiving(db);
      options.living.refresh(living);
      options.livingEndpoints.refresh(await countLivingEndpoints(db));
      const stats = options.relay.stats();
      options.metrics.living.set(living);
      options.metrics.waitingEvents.set(stats.waitingEvents);
      options.metrics.unfinished.set(stats.unfinished);
      options.metrics.startRate.set(options.starter.budget.rate());
    }),
    every(30 * SECOND, 'count', async () => {
      const shards = options.leases.held().map((lease) => lease.shard);
      const rows = await countWork(db, shards);
      options.metrics.withoutWorkflow.set(Math.max(0, rows - (await countLiving(db))));
      options.metrics.outboxAgeSeconds.set((await oldestAgeMs(db, shards)) / 1_000);
      options.metrics.held.set(await countHeld(db, shards));
      const endpoints = await countEndpoints(db, shards);
      for (const health of HEALTHS) options.metrics.endpoints.set({ health }, endpoints[health] ?? 0);
    }),
    every(60 * SECOND, 'endpoint workflows', () =>
      scanDisown(
        db,
        options.leases.held().map((lease) => lease.shard),
      ),
    ),
    every(30 * SECOND, 'weights', async () => {
      options.weights.of = await loadWeights(db);
    }),
    every(10 * 60 * SECOND, 'partitions', () => ensurePartitions(db)),
    every(3_600 * SECOND, 'retention', () => retire(db, log)),
  ];
  return {
    async stop() {
      await Promise.all(stops.map((stop) => stop()));
    },
  };
}
