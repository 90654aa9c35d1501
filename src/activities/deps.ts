/** What the activities are given by src/main.ts. */
import type { DbClock } from '../db/clock.ts';
import type { LoadedDelivery } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import type { Log } from '../log.ts';
import type { Starter } from '../temporal/starter.ts';
import type { Carriers } from './carriers.ts';
import type { Gate } from './gate.ts';
import type { Living } from './living.ts';
import type { MemberOutcome } from './outcome.ts';
import type { Progress } from './progress.ts';
import type { Sender } from './sender.ts';
import type { Sleepers } from './sleepers.ts';

export interface ActivityDeps {
  db: Pool;
  sender: Sender;
  gate: Gate;
  clock: DbClock;
  starter: Starter;
  living: Living;
  progress: Progress;
  carriers: Carriers;
  /** Relays run in other processes: what they offer is taken. */
  takesOffers: boolean;
  sleepers: Sleepers;
  grouping: 'auto' | 'never';
  log: Log;
  /** There may be news of an endpoint for the health step. */
  tellHealth(): void;
  /** Aborts when this process stops: no new claims after that. */
  stopping: AbortSignal;
  /** Every recorded attempt passes here: metrics, the canonical log line, disabling after 410, fairness costs. */
  observe(row: LoadedDelivery, outcome: MemberOutcome & { kind: 'recorded' }): void;
}
