/**
 * The engine of a process: relay and scanner, workers and what they send with. Called by src/process.ts for the roles
 * relay and worker; the only place where these parts meet.
 */

import { type Carriers, createCarriers } from './activities/carriers.ts';
import { createGate } from './activities/gate.ts';
import { createActivities } from './activities/index.ts';
import { createLiving, type Living } from './activities/living.ts';
import { createObserver, type Observer } from './activities/observe.ts';
import { createProgress, type Progress } from './activities/progress.ts';
import { createRecorder } from './activities/recorder.ts';
import { createSender } from './activities/sender.ts';
import { createSleepers } from './activities/sleepers.ts';
import { createDbClock } from './db/clock.ts';
import { scanSoon } from './db/endpoints.ts';
import { type Hint, listen } from './db/notify.ts';
import type { Pool } from './db/pool.ts';
import { countLiving } from './db/scan.ts';
import { createEgress } from './egress/post.ts';
import { newId } from './ids.ts';
import { createMail } from './mail.ts';
import type { Metrics } from './metrics.ts';
import type { Closer, Engine, ProcessOptions } from './process.ts';
import { createHealth, type Health } from './relay/health.ts';
import { SHARD_COUNT } from './relay/leases.ts';
import { startNotices } from './relay/notices.ts';
import { createOffers, type GroupCarriers } from './relay/offers.ts';
import { createRelay, type Relay } from './relay/relay.ts';
import { createScanner, type Scanner } from './relay/scanner.ts';
import { startUpkeep } from './relay/upkeep.ts';
import { createUs } from './relay/us.ts';
import { connectTemporal } from './temporal/connection.ts';
import { createStarter, type Starter } from './temporal/starter.ts';
import { startWorkers, type WorkerSet } from './temporal/worker.ts';
import { LANE_QUEUES, type Lane } from './workflows/contract.ts';

/** Deliveries that may sleep in a workflow of their own: a wake costs about a start. */
const LIVING_LIMIT = 300;
/** Endpoints in mode pump that may have a workflow (docs/adr/0003-endpoint-health.md): each probe costs a timer and an activity. */
const LIVING_ENDPOINTS = 100;
/** How long a stop waits for PostgreSQL to take the last answers. */
const DRAIN_MS = 30_000;
/** Deliveries of a disabled endpoint that are shown to the scanner at once. */
const SCAN_BATCH = 1_000;
/** Requests to receivers under way at once. */
const REQUESTS_LIMIT = 1_000;

export interface EngineOptions extends ProcessOptions {
  db: Pool;
  id: string;
  metrics: Metrics;
  stopping: AbortSignal;
  closers: Closer[];
  /** Tells scanners, of this process and others. */
  hint: (hint: Hint) => void;
}

interface Parts extends EngineOptions {
  starter: Starter;
  living: Living;
  observer: Observer;
  progress: Progress;
  carriers: Carriers;
}

export async function startEngine(options: EngineOptions): Promise<Engine> {
  const { config, log, metrics } = options;
  let scanner: Scanner | undefined;
  let relay: Relay | undefined;
  let health: Health | undefined;
  let workers: WorkerSet | undefined;

  const connection = await connectTemporal(config.temporal.connectionOptions, log, options.stopping);
  options.closers.push(() => connection.close());
  const starter = createStarter({
    connection,
    namespace: config.temporal.namespace,
    log,
    seesAttempts: options.roles.includes('worker') && (options.lanes?.includes('first') ?? true),
  });
  const living = createLiving(LIVING_LIMIT);
  const observer = createObserver({ log, metrics, tellHealth: () => options.hint('health') });
  const carriers = createCarriers((lane) => void starter.startDispatch(newId('dsp'), lane, 0));
  const parts: Parts = {
    ...options,
    starter,
    living,
    observer,
    progress: createProgress(),
    carriers,
  };
  if (options.roles.includes('worker')) {
    const activities = await startSending(parts);
    const lanes = options.lanes ?? (Object.keys(LANE_QUEUES) as Lane[]);
    workers = await startWorkers({
      connection,
      namespace: config.temporal.namespace,
      activities,
      lanes,
      log,
    });
    options.closers.push(() => workers!.shutdown());
  }
  if (options.roles.includes('relay')) {
    ({ relay, scanner, health } = startRelaying(parts));
  }
  return {
    poke: (hint) => take(hint, { relay, scanner, health, starter }),
    holdsEveryShard: () => relay !== undefined && relay.leases.held().length === SHARD_COUNT,
    checks: () => ({
      temporal: starter.available(),
      ...(workers === undefined ? {} : { temporal_worker: workers.healthy() }),
    }),
  };
}

/** News from the API, of this process or another. */
function take(
  hint: Hint,
  parts: {
    relay: Relay | undefined;
    scanner: Scanner | undefined;
    health: Health | undefined;
    starter: Starter;
  },
): void {
  if (hint === 'events') parts.relay?.poke();
  else if (hint === 'work') parts.scanner?.poke();
  else if (hint === 'health') parts.health?.poke();
  else if (parts.relay !== undefined) void parts.starter.wakeWorkflow(hint.slice('wake:'.length));
}

/** The sending side: clock, egress, recorder, sender, and the activities over them. */
async function startSending(parts: Parts) {
  const { config, db, log, metrics } = parts;
  const clock = createDbClock(db);
  await clock.sync();
  const egress = createEgress({ allow: config.egressAllow, proxy: config.egressProxy });
  const gate = createGate(REQUESTS_LIMIT);
  const recorder = createRecorder({ db, log });
  const clockTimer = setInterval(() => void clock.sync().catch(() => {}), 10_000);
  const gauges = setInterval(() => {
    void countLiving(db).then(parts.living.refresh, () => {});
    metrics.recordWaiting.set(recorder.waiting());
    metrics.inFlight.set(gate.inFlight());
    metrics.eventLoopLagSeconds.set(gate.lagMs() / 1_000);
  }, 1_000);
  parts.closers.push(async () => {
    await Promise.race([recorder.drain(), new Promise((resolve) => setTimeout(resolve, DRAIN_MS).unref())]);
    if (recorder.waiting() > 0) {
      log.error(
        { attempts: recorder.waiting() },
        'stopped with attempts unrecorded: PostgreSQL is away; they will be repeated',
      );
    }
    clearInterval(clockTimer);
    clearInterval(gauges);
    gate.close();
    await egress.close();
  });
  const sender = createSender({ db, egress, recorder, clock, gate, keys: config.masterKeys!, log });
  return createActivities({
    db,
    sender,
    gate,
    clock,
    starter: parts.starter,
    living: parts.living,
    progress: parts.progress,
    carriers: parts.carriers,
    takesOffers: !parts.roles.includes('relay'),
    sleepers: createSleepers({ db, starter: parts.starter }),
    grouping: config.grouping,
    log,
    stopping: parts.stopping,
    observe: parts.observer.observe,
    tellHealth: () => parts.hint('health'),
  });
}

/** The relaying side: relay, scanner, chores, and hints from API processes. */
function startRelaying(parts: Parts): { relay: Relay; scanner: Scanner; health: Health } {
  const { config, db, log, starter, living } = parts;
  const weights = { of: new Map<string, number>() };
  const endpoints = createLiving(LIVING_ENDPOINTS);
  const offers = starter.seesAttempts ? null : createOffers({ db, starter, log });
  const carriers: GroupCarriers = {
    open: (lane) => parts.carriers.open(lane) || (offers?.open(lane) ?? false),
    carry: (lane, dispatch, members) =>
      parts.carriers.open(lane)
        ? parts.carriers.carry(lane, dispatch)
        : (offers?.carry(lane, dispatch, members) ?? false),
  };
  const relay = createRelay({
    db,
    starter,
    log,
    grouping: config.grouping,
    processId: parts.id,
    roles: parts.roles.join('+'),
    costOf: parts.observer.costOf,
    weightOf: (tenant) => weights.of.get(tenant) ?? 1,
    progress: starter.seesAttempts ? parts.progress : null,
    carriers,
    ...(offers === null ? {} : { onWorked: offers.worked }),
  });
  const scanner = createScanner({
    db,
    starter,
    carriers,
    leases: relay.leases,
    grouping: config.grouping,
    log,
    livingRoom: () => LIVING_LIMIT - living.count(),
    endpointRoom: () => LIVING_ENDPOINTS - endpoints.count(),
    onReaped: () => parts.metrics.attempts.inc({ class: 'worker_lost' }),
  });
  // Of its own: a relay may run apart from the workers. It only ever connects.
  const egress = createEgress({ allow: config.egressAllow, proxy: config.egressProxy });
  const health = createHealth({
    db,
    leases: relay.leases,
    log,
    scan: () => scanner.poke(),
    endWorkOf: async (disabled) => {
      for (const endpoint of disabled) while ((await scanSoon(db, endpoint, SCAN_BATCH)) === SCAN_BATCH);
    },
    onEdge: (edge, by) => parts.metrics.edges.inc({ edge, by }),
    isItUs: createUs({
      db,
      log,
      shards: () => relay.leases.held().map((lease) => lease.shard),
      check: egress.check,
      targets: config.selfCheck,
      onChange: (frozen) => parts.metrics.sendingFrozen.set(frozen ? 1 : 0),
    }),
  });
  const upkeep = startUpkeep({
    db,
    log,
    leases: relay.leases,
    living,
    livingEndpoints: endpoints,
    metrics: parts.metrics,
    weights,
    starter,
    relay,
  });
  if (config.smtpUrl !== undefined) {
    const mail = createMail(config.smtpUrl, config.mailFrom!);
    const notices = startNotices({ db, leases: relay.leases, log, send: mail.send });
    parts.closers.push(async () => {
      await notices.stop();
      mail.close();
    });
  }
  const hints = listen(config.databaseDirectUrl, (hint) => take(hint, { relay, scanner, health, starter }));
  parts.closers.push(
    () => egress.close(),
    () => hints.close(),
    () => upkeep.stop(),
  );
  void relay.run();
  void scanner.run();
  void health.run();
  parts.closers.push(async () => {
    await Promise.all([relay.stop(), scanner.stop(), health.stop()]);
  });
  return { relay, scanner, health };
}
