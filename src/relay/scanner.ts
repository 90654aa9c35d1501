/**
 * The scanner: every second, for the shards this process holds, it gives what lost its owner a new one. Rows that
 * wait without a workflow, workflows that vanished or overslept, groups whose worker died, claims nobody will record,
 * deadlines that passed. It is the only caller of reap. Everything it does is safe to repeat.
 */
import { dissolve } from '../db/dispatches.ts';
import { disownEndpointRow } from '../db/health.ts';
import { isUnreachable, type Pool } from '../db/pool.ts';
import {
  adoptPumps,
  groupPumps,
  regroup,
  scanAdopt,
  scanDue,
  scanFinish,
  scanHold,
  scanLater,
  scanPumps,
  scanTests,
  scanWake,
} from '../db/scan.ts';
import { reap } from '../db/verbs.ts';
import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import { NEVER_OUTSTANDING } from '../temporal/budget.ts';
import type { Starter } from '../temporal/starter.ts';
import type { Lane } from '../workflows/contract.ts';
import type { Leases } from './leases.ts';
import type { GroupCarriers } from './offers.ts';
import { startReplays } from './replays.ts';

export interface ScannerOptions {
  db: Pool;
  starter: Starter;
  /** Running dispatches of this process: they take groups along. */
  carriers: GroupCarriers;
  leases: Leases;
  grouping: 'auto' | 'never';
  log: Log;
  /** Room in the living budget: rows that may get a workflow of their own now. */
  livingRoom: () => number;
  /** The same for endpoints in mode pump. */
  endpointRoom: () => number;
  onReaped?: (delivery: string) => void;
}

export interface Scanner {
  run(): Promise<void>;
  /** Something is due now (a resend, a cancel): scan without waiting for the second. */
  poke(): void;
  stop(): Promise<void>;
}

const EVERY_MS = 1_000;
const POKED_MS = 20;
const LIMIT = 2_000;
const ALIVE_MS = 30_000;
/** A claim is reaped this long after it expired, and only after as much uninterrupted contact with the database. */
export const REAP_GRACE_MS = 15_000;
/** Contact counts as interrupted when two answers of the database are further apart than this. */
const CONTACT_GAP_MS = 10_000;
const TELL_LIMIT = 50;
const TEST_LIMIT = 20;
/** Endpoints looked at in one scan, and in one group of pumps. */
const PUMP_LIMIT = 500;
const PUMP_GROUP = 100;
const LANES: readonly Lane[] = ['first', 'retry', 'bulk'];

export function createScanner(options: ScannerOptions): Scanner {
  const { db, starter, leases, log } = options;
  let stopping = false;
  let pending = false;
  let wake: () => void = () => {};
  let contactSince: number | null = null;
  let contactAt = 0;

  /** The database answered. Only that is contact: a scan that has no shards to look at proves nothing. */
  const touched = (): void => {
    const now = performance.now();
    if (contactSince === null || now - contactAt > CONTACT_GAP_MS) contactSince = now;
    contactAt = now;
  };

  const scan = async (): Promise<boolean> => {
    const shards = leases.held().map((lease) => lease.shard);
    if (shards.length === 0 || !leases.valid()) return false;
    await dissolve(db, shards, null, REAP_GRACE_MS);
    touched();
    if (starter.available()) await startTests(shards);
    const due = new Map((await scanDue(db, shards, REAP_GRACE_MS, LIMIT)).map((row) => [row.need, row.rows]));
    const all = [...due.values()].reduce((sum, rows) => sum + rows, 0) >= LIMIT; // there may be more of any need
    let more = false;
    if (all || due.has('later')) await scanLater(db, shards, REAP_GRACE_MS, LIMIT);
    touched(); // again: it may have been silent since the first answer of this scan
    if (
      (all || due.has('reap')) &&
      contactSince !== null &&
      performance.now() - contactSince >= REAP_GRACE_MS
    ) {
      for (const { delivery, n } of await reap(db, shards, REAP_GRACE_MS, LIMIT)) {
        log.warn({ delivery, attempt: n, class: 'worker_lost' }, 'attempt.unknown');
        options.onReaped?.(delivery);
        more = true; // they are due at once
      }
    }
    if (due.has('finish')) more = (await finishDue(shards)) || more;
    if (due.has('hold')) {
      await scanHold(db, shards, LIMIT);
      more ||= due.get('hold')! >= LIMIT / 2;
    }
    if (!starter.available()) return false;
    await givePumps(shards);
    await startReplays(db, starter, shards);
    if (due.has('wake')) await wakeLate(shards);
    const waiting = LANES.reduce((sum, lane) => sum + (due.get(lane) ?? 0), 0);
    if (waiting > 0) more = (await giveOwner(shards, due, waiting)) || more;
    return more;
  };

  /** Somebody waits for their answer: before anything else, and whether or not start tokens are left. */
  const startTests = async (shards: readonly number[]): Promise<void> => {
    for (const row of await scanTests(db, shards, TEST_LIMIT, ALIVE_MS)) {
      starter.budget.take('single', performance.now());
      void starter.startDelivery(row, { generation: row.generation });
    }
  };

  const finishDue = async (shards: readonly number[]): Promise<boolean> => {
    const ended = await scanFinish(db, shards, LIMIT);
    // Their workflows would sleep on and look alive; telling them is a courtesy, within bounds.
    const sleeping = ended.filter((row) => row.workflow).slice(0, TELL_LIMIT);
    if (starter.available()) for (const { delivery } of sleeping) void starter.wakeIfRunning(delivery);
    return ended.length >= LIMIT;
  };

  const singleRoom = (kind: 'retry' | 'wake'): number =>
    options.grouping === 'never'
      ? Math.max(0, NEVER_OUTSTANDING - starter.outstanding())
      : starter.budget.available(kind, performance.now());

  const wakeLate = async (shards: readonly number[]): Promise<void> => {
    const room = singleRoom('wake');
    if (room < 1) return;
    for (const row of await scanWake(db, shards, room)) {
      starter.budget.take('wake', performance.now());
      void starter.wakeDelivery(row, row.generation);
    }
  };

  /** Few rows get workflows of their own, many become groups. */
  const giveOwner = async (
    shards: readonly number[],
    due: ReadonlyMap<string, number>,
    waiting: number,
  ): Promise<boolean> => {
    const never = options.grouping === 'never';
    const singles = never ? singleRoom('retry') : Math.min(singleRoom('retry'), options.livingRoom());
    if (never || waiting <= singles) {
      for (const row of await scanAdopt(db, shards, LANES, singles, ALIVE_MS)) {
        starter.budget.take('retry', performance.now());
        void starter.startDelivery(row, { generation: row.generation, lane: 'retry' });
      }
      return never && waiting > singles;
    }
    let more = false;
    for (const lane of LANES) {
      if (!due.has(lane)) continue;
      const kind = lane === 'first' ? 'group' : 'retryGroup';
      // Also those that join: how many are under way is bounded by how many begin.
      while (starter.budget.take(kind, performance.now())) {
        const dispatch = newId('dsp');
        const members = await regroup(db, shards, lane, dispatch, 500, ALIVE_MS);
        if (members > 0 && !options.carriers.carry(lane, dispatch, members))
          void starter.startDispatch(dispatch, lane, members);
        if (members < 500) break;
        more = true;
      }
    }
    return more;
  };

  /**
   * Endpoints in mode pump: those with a workflow are told that something is due; the others get one while the budget
   * lasts, so that people see them; beyond it, who has something to send is pumped in a group.
   */
  const givePumps = async (shards: readonly number[]): Promise<void> => {
    const bare: string[] = [];
    for (const { endpoint, tenant, workflow } of await scanPumps(db, shards, PUMP_LIMIT)) {
      if (!workflow) bare.push(endpoint);
      else if (starter.budget.take('endpoint', performance.now()))
        void starter.wakeEndpoint(endpoint, tenant);
      else bare.push(endpoint); // not to wait for tokens: a group does the same
    }
    const tokens = starter.budget.available('endpoint', performance.now());
    const room = Math.min(options.endpointRoom(), tokens);
    const adopted = room < 1 ? [] : await adoptPumps(db, shards, room);
    for (const { endpoint, tenant } of adopted) {
      starter.budget.take('endpoint', performance.now());
      void starter.wakeEndpoint(endpoint, tenant).then(async (begun) => {
        if (!begun) await disownEndpointRow(db, endpoint).catch(() => {}); // to be adopted again
      });
    }
    const alone = new Set(adopted.map(({ endpoint }) => endpoint));
    const rest = bare.filter((endpoint) => !alone.has(endpoint));
    for (let i = 0; i < rest.length; i += PUMP_GROUP) {
      const group = rest.slice(i, i + PUMP_GROUP);
      const dispatch = newId('dsp');
      await groupPumps(db, dispatch, group, ALIVE_MS);
      if (!options.carriers.carry('held', dispatch, group.length))
        void starter.startDispatch(dispatch, 'held', group.length);
    }
  };

  let running: Promise<void> = Promise.resolve();
  const loop = async (): Promise<void> => {
    while (!stopping) {
      let more = false;
      pending = false;
      try {
        more = await scan();
      } catch (error) {
        contactSince = null;
        if (isUnreachable(error)) log.warn({ err: error }, 'PostgreSQL is away; the scanner tries again');
        else log.error({ err: error }, 'a scan failed; trying again');
      }
      if (stopping) return;
      await new Promise<void>((resolve) => {
        // Pokes come in swarms; one scan serves them all.
        const timer = setTimeout(done, pending ? POKED_MS : more ? 100 : EVERY_MS);
        function done(): void {
          clearTimeout(timer);
          resolve();
        }
        wake = () => {
          if (stopping) return done();
          clearTimeout(timer);
          setTimeout(done, POKED_MS);
        };
      });
    }
  };

  const poke = (): void => {
    pending = true;
    wake();
  };
  return {
    poke,
    run() {
      running = loop();
      return running;
    },
    async stop() {
      stopping = true;
      wake();
      await running;
    },
  };
}
