/**
 * The relay: outbox rows → deliveries → workflows. One loop per process over the shards it holds.
 *
 *   discover (discovery.ts) → whose turn (domain/fairness.ts) → fan out (one transaction) → start workflows
 *
 * While single starts last, each delivery gets its own workflow delivery/<id>; when they run out, everything ready
 * becomes one dispatch/<id> group at the next group token. A crash between the fan-out and the start leaves rows and
 * a group nobody works on: the scanner (scanner.ts) finds them. Follow a delivery: src/workflows/delivery.ts next.
 */
import { type FannedOut, fanOut, type Position } from '../db/outbox.ts';
import { isUnreachable, type Pool } from '../db/pool.ts';
import { refreshStatistics } from '../db/upkeep.ts';
import { type Deficits, pickTurns } from '../domain/fairness.ts';
import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import { NEVER_OUTSTANDING } from '../temporal/budget.ts';
import type { Starter } from '../temporal/starter.ts';
import { deliveryWorkflowId, dispatchWorkflowId } from '../workflows/contract.ts';
import { type Bound, createBound, type GroupsHere } from './bound.ts';
import { createDiscovery, type Discovery } from './discovery.ts';
import { createLeases, type Leases, RENEW_MS } from './leases.ts';
import type { GroupCarriers } from './offers.ts';

export interface RelayOptions {
  db: Pool;
  starter: Starter;
  log: Log;
  grouping: 'auto' | 'never';
  processId: string;
  roles: string;
  /** Expected worker time per event of a tenant, ms; learnt from attempts of this process. */
  costOf: (tenant: string) => number;
  weightOf?: (tenant: string) => number;
  /** Of the workers for first attempts of this process, if it has any. */
  progress: GroupsHere | null;
  /** Running dispatches of this process (src/activities/carriers.ts), or of others (offers.ts). */
  carriers: GroupCarriers;
  /** A group was worked on, here or elsewhere. */
  onWorked?: () => void;
}

export interface Relay {
  run(): Promise<void>;
  /** New events are committed: look at once. */
  poke(): void;
  stop(): Promise<void>;
  leases: Leases;
  stats(): { shards: number; waitingTenants: number; waitingEvents: number; unfinished: number };
}

const BOUND = 4_000;
const GROUP_SIZE = 1_000;
const NO_GROUPS = 2 ** 31 - 1; // an event may have more deliveries than a group has room
const POLL_MIN_MS = 20;
const POLL_MAX_MS = 250;
const ALIVE_MS = 30_000;
const BOUND_REFRESH_MS = 50;
const BACKLOG_POLL_MS = 50;
/** With a backlog, when there is news of events. */
const NEWS_POLL_MS = 15;
/** So long pages are looked at one after the other; leases are renewed between turns. */
const LOOK_MS = 300;
/**
 * A group of so many or more, but not a full one, waits until the last is so old: what Temporal spends on a start is then
 * worth more than the few milliseconds.
 */
const LARGE_GROUP = 100;
const LARGE_GROUP_MS = 125;
/** Groups that a running dispatch takes along cost Temporal nothing: they may be small, and follow each other sooner. */
const CARRIED_MS = 40;
const LARGE_CARRIED_MS = 100;
/** How long after a group new deliveries are grouped too, few as they may be. */
const GROUPING_MS = 250;
/**
 * Deliveries of about the last ten seconds above which new ones go in groups, however many starts are left: a workflow costs
 * what a hundred deliveries in groups cost, and at ten a second two slow cores do little else. What counts above it is
 * forgotten in a second or two, so that after a burst what comes singly is seen singly again.
 */
const SINGLES = 40;
const PACE_MOST = 50;
const PACE_MS = 10_000;
const REDISCOVER_MS = 60_000;
/** From so many unfinished deliveries or waiting events on, the planner is asked this often whether it knows of them. */
const MANY = 500;
const STATISTICS_MS = 1_000;

/** Until the next turn. `poke`: news of events end it; else it waits for something that news can't bring. */
interface Pause {
  ms: number;
  poke: boolean;
}
const AT_ONCE: Pause = { ms: 0, poke: false };
const pause = (ms: number): Pause => ({ ms, poke: false });

/** Deliveries of about the last ten seconds: older ones count less and less. */
function createPace() {
  let sum = 0;
  let at = 0;
  const recent = (now: number): number => {
    sum *= Math.exp(-Math.max(0, now - at) / PACE_MS);
    at = now;
    return sum;
  };
  return {
    recent,
    add(deliveries: number, now: number): void {
      sum = Math.min(PACE_MOST, recent(now) + deliveries);
    },
  };
}

export function createRelay(options: RelayOptions): Relay {
  const { db, starter, log } = options;
  const leases = createLeases(db, options.processId, options.roles);
  const discovery = createDiscovery(db);
  const bound = createBound(db, BOUND, options.progress, (kind, id) => {
    starter.began(kind === 'dispatch' ? dispatchWorkflowId(id) : deliveryWorkflowId(id));
    if (kind === 'dispatch') options.onWorked?.();
  });
  const deficits: Deficits = new Map();
  const pace = createPace();
  const fanOuts = new Map<string, number>(); // deliveries per event, moving average per tenant
  let onPoke: () => void = () => {};
  let pending = false;
  let stopping = false;
  let lastServed = '';
  let idleMs = POLL_MIN_MS;
  let boundAt = 0;
  let polledAt = 0;
  let statisticsAt = 0;
  let startedAt = Number.NEGATIVE_INFINITY; // the last small group; a large one does not make it wait
  let largeAt = Number.NEGATIVE_INFINITY;
  let groupedAt = Number.NEGATIVE_INFINITY;
  let full = false; // the last look filled a page
  let leasesAt = Number.NEGATIVE_INFINITY;
  let rediscoverAt = performance.now() + REDISCOVER_MS;

  const poke = (): void => {
    pending = true;
    onPoke();
  };

  const waitingEvents = (): number =>
    [...discovery.waiting().values()].reduce((sum, tenant) => sum + tenant.waiting, 0);

  /** One turn of the loop; answers how long to wait before the next. */
  const turn = async (): Promise<Pause> => {
    const now = performance.now();
    if (now - leasesAt >= RENEW_MS) {
      const changed = await leases.tick();
      const shards = leases.held().map((lease) => lease.shard);
      discovery.setShards(shards); // every time: a tick that failed half way may have changed them
      if (changed) await bound.adopt(shards);
      leasesAt = now;
    }
    if (leases.held().length === 0 || !leases.valid()) return pause(POLL_MAX_MS);
    if (now >= rediscoverAt && discovery.waiting().size === 0) {
      discovery.rewind(); // heals what a lost race could have hidden; one walk over an almost empty table
      rediscoverAt = now + REDISCOVER_MS;
    }
    // While tenants wait there is work to do; news of others can wait a moment for the next look.
    const sincePoll = now - polledAt;
    const look =
      discovery.waiting().size === 0 ||
      full ||
      sincePoll >= BACKLOG_POLL_MS ||
      (pending && sincePoll >= NEWS_POLL_MS);
    if (look) {
      pending = false;
      full = await discovery.poll();
      // A burst lies before what others have committed after it: they are found before any of it is sent.
      while (full && !stopping && performance.now() - now < LOOK_MS) full = await discovery.poll();
      polledAt = now;
    }
    // Where attempts begin elsewhere their rows say so; what is outstanding must not wait for the next event to be seen.
    const blind = !starter.seesAttempts && (starter.outstanding() > 0 || bound.unfinished() > 0);
    if (blind && now - boundAt >= BOUND_REFRESH_MS) {
      await bound.refresh();
      boundAt = now;
    }
    if (discovery.waiting().size === 0) {
      if (blind) return { ms: BOUND_REFRESH_MS, poke: true };
      idleMs = Math.min(POLL_MAX_MS, idleMs * 1.2);
      return full ? AT_ONCE : { ms: idleMs, poke: true };
    }
    idleMs = POLL_MIN_MS;
    if (!starter.available()) return pause(POLL_MAX_MS);
    if (bound.unfinished() > 0 && now - boundAt >= BOUND_REFRESH_MS) {
      await bound.refresh();
      boundAt = now;
    }
    if (now - statisticsAt >= STATISTICS_MS) {
      statisticsAt = now;
      if (Math.max(bound.unfinished(), waitingEvents()) >= MANY)
        void refreshStatistics(db, bound.unfinished(), waitingEvents()).catch(() => {}); // nobody waits for a better plan
    }
    if (bound.room() < 1) return pause(BOUND_REFRESH_MS);
    return fanOutTurn(discovery, bound);
  };

  const fanOutTurn = async (waiting: Discovery, room: Bound): Promise<Pause> => {
    const now = performance.now();
    const never = options.grouping === 'never';
    const singles = never
      ? NEVER_OUTSTANDING - starter.outstanding()
      : starter.budget.available('single', now);
    if (never && singles < 1) return pause(POLL_MIN_MS);
    // Tenants at their own bound wait for it, and make nobody else wait.
    const eligible = queues(waiting, room).filter((queue) => queue.room >= 1);
    const ready = eligible.reduce(
      (sum, queue) => sum + Math.min(queue.waiting * queue.fanOut, queue.room),
      0,
    );
    // News of others ends the wait, at most every few milliseconds.
    if (ready === 0) return pending ? pause(NEWS_POLL_MS) : { ms: BOUND_REFRESH_MS, poke: true };
    // Stragglers just behind a group wait for the next one: a start of their own would double what Temporal does.
    const single =
      never || (ready <= singles && now - groupedAt >= GROUPING_MS && pace.recent(now) + ready <= SINGLES);
    const carried = !single && options.carriers.open('first');
    // With a backlog, half a group costs as much to start as a whole one: wait until there is room for it.
    if (!single && room.room() < Math.min(GROUP_SIZE, ready)) return pause(BOUND_REFRESH_MS);
    const large = ready >= LARGE_GROUP;
    const dueMs = (carried ? carriedMs(ready) : startedMs(ready)) - (now - (large ? largeAt : startedAt));
    if (!single && dueMs > 0) return pause(Math.min(POLL_MIN_MS, dueMs));
    if (!single && !carried && !starter.budget.take('group', now)) {
      return pause(Math.min(POLL_MIN_MS, Math.max(2, starter.budget.waitMs('group', now))));
    }
    if (!single && large) largeAt = now;
    else if (!single) startedAt = now;
    if (!single && ready > singles) groupedAt = now; // stragglers do not prolong it
    const size = Math.min(never ? singles : GROUP_SIZE, room.room());
    const turns = pickTurns(eligible, deficits, size);
    if (turns.length === 0) return pause(BOUND_REFRESH_MS);
    lastServed = turns.at(-1)!.tenant;
    const taken = await fanOut(db, {
      leases: leases.held(),
      tenants: turns.map(({ tenant, events }) => ({
        tenant,
        after: waiting.waiting().get(tenant)!.after,
        // More than are known to wait: whether any are left is then answered at once, not by another call.
        limit: events >= waiting.waiting().get(tenant)!.waiting ? events + 2 : events,
        room: Math.min(room.roomOf(tenant), size),
      })),
      dispatch: newId('dsp'),
      singles: never ? NO_GROUPS : single ? singles : 0,
      aliveMs: ALIVE_MS,
    });
    account(turns, taken, waiting, room);
    log.debug(
      {
        ms: Math.round(performance.now() - now),
        events: taken.tenants.reduce((sum, t) => sum + t.events, 0),
        groups: taken.dispatches.length,
        singles: taken.deliveries.length,
        waiting: waiting.waiting().size,
        unfinished: room.unfinished(),
        rate: Math.round(starter.budget.rate()),
      },
      'fanned out',
    );
    start(taken);
    return AT_ONCE;
  };

  const startedMs = (ready: number): number =>
    ready >= LARGE_GROUP && ready < GROUP_SIZE ? LARGE_GROUP_MS : 0;
  const carriedMs = (ready: number): number =>
    ready >= GROUP_SIZE ? 0 : ready >= LARGE_GROUP ? LARGE_CARRIED_MS : CARRIED_MS;

  const fanOutOf = (tenant: string): number => Math.max(0.2, fanOuts.get(tenant) ?? 1);

  /** Waiting tenants beginning after the one served last, so that turns rotate. */
  const queues = (waiting: Discovery, room: Bound) => {
    const all = [...waiting.waiting().values()].sort((a, b) => (a.tenant < b.tenant ? -1 : 1));
    const first = all.findIndex((t) => t.tenant > lastServed);
    const turned = first > 0 ? [...all.slice(first), ...all.slice(0, first)] : all;
    return turned.map((t) => ({
      tenant: t.tenant,
      waiting: t.waiting,
      weight: options.weightOf?.(t.tenant) ?? 1,
      costMs: options.costOf(t.tenant) * fanOutOf(t.tenant),
      fanOut: fanOutOf(t.tenant),
      room: worthwhileRoom(room.roomOf(t.tenant), t.waiting * fanOutOf(t.tenant)),
    }));
  };

  /** A tenant at its bound waits until there is room for a fair part of a group: a group of three costs as much. */
  const worthwhileRoom = (room: number, wanted: number): number =>
    room >= Math.min(wanted, GROUP_SIZE / 4) ? room : 0;

  const account = (
    turns: readonly { tenant: string; events: number }[],
    taken: FannedOut,
    waiting: Discovery,
    room: Bound,
  ): void => {
    const byTenant = new Map(taken.tenants.map((t) => [t.tenant, t]));
    const perTenant = new Map<string, number>();
    for (const { tenant, events } of turns) {
      const got = byTenant.get(tenant);
      const last: Position | null = got === undefined ? null : { xid: got.xid, seq: got.seq };
      waiting.took(tenant, got?.events ?? 0, last, got === undefined ? events : got.lim);
      if (got === undefined) continue;
      perTenant.set(tenant, got.deliveries);
      pace.add(got.deliveries, performance.now());
      fanOuts.set(tenant, fanOutOf(tenant) * 0.8 + (got.deliveries / got.events) * 0.2);
    }
    room.add({
      dispatches: taken.dispatches.map((d) => d.id),
      deliveries: taken.deliveries.map((d) => d.delivery),
      perTenant,
    });
  };

  /** Not awaited: the next fan-out goes on meanwhile. The bound keeps what is started and unfinished small. */
  const start = (taken: FannedOut): void => {
    for (const group of taken.dispatches) {
      if (options.carriers.carry('first', group.id, group.members)) continue;
      void starter.startDispatch(group.id, 'first', group.members);
    }
    for (const delivery of taken.deliveries) {
      starter.budget.take('single', performance.now());
      void starter.startDelivery(delivery, { generation: 1 });
    }
  };

  const sleep = (wait: Pause): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(done, wait.ms);
      function done(): void {
        clearTimeout(timer);
        onPoke = () => {};
        resolve();
      }
      onPoke = () => {
        if (wait.poke || stopping) done();
      };
    });

  let running: Promise<void> = Promise.resolve();
  const loop = async (): Promise<void> => {
    while (!stopping) {
      let wait: Pause;
      try {
        wait = await turn();
      } catch (error) {
        if ((error as { code?: string }).code === 'PHFEN') leasesAt = Number.NEGATIVE_INFINITY;
        else if (!isUnreachable(error)) log.error({ err: error }, 'a relay turn failed; trying again');
        else log.warn({ err: error }, 'PostgreSQL is away; the relay tries again');
        wait = pause((error as { code?: string }).code === 'PHFEN' ? POLL_MIN_MS : 500);
      }
      if (stopping) break;
      if (wait.ms > 0 && !(wait.poke && pending)) await sleep(wait);
    }
  };

  return {
    leases,
    poke,
    run() {
      running = loop();
      return running;
    },
    async stop() {
      stopping = true;
      poke();
      await running;
      await leases
        .release()
        .catch((error: unknown) =>
          log.warn({ err: error }, 'shard leases could not be given up; they run out in 6 s'),
        );
    },
    stats: () => ({
      shards: leases.held().length,
      waitingTenants: discovery.waiting().size,
      waitingEvents: waitingEvents(),
      unfinished: bound.unfinished(),
    }),
  };
}
