/**
 * Puts one process together: which roles it plays, what they share, and in what order they start and stop.
 * Called by src/main.ts and by tests. Nothing else builds real dependencies.
 *
 * Stop: no new claims, no new fan-outs → requests under way finish and are recorded → leases, groups and connections
 * are given up. Any instant of a kill is safe too; it only costs the reaper's time.
 */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Config } from './config.ts';
import { type Hint, notify } from './db/notify.ts';
import { createPool, type Pool } from './db/pool.ts';
import type { Log } from './log.ts';
import { createMetrics } from './metrics.ts';
import { deliveryWorkflowId, type Lane } from './workflows/contract.ts';

export type Role = 'api' | 'relay' | 'worker';

export interface ProcessOptions {
  config: Config;
  roles: readonly Role[];
  log: Log;
  lanes?: readonly Lane[];
  /** Ends a start that is still waiting for Temporal. */
  signal?: AbortSignal;
}

export interface RunningProcess {
  /** Where the API listens; null without the role. */
  url: string | null;
  stop(): Promise<void>;
}

/** A part that must be stopped; run last in, first out. */
export type Closer = () => Promise<void> | void;

export async function startProcess(options: ProcessOptions): Promise<RunningProcess> {
  const { config, log } = options;
  const has = (role: Role): boolean => options.roles.includes(role);
  const engineWanted = has('worker') || has('relay');
  const stopping = new AbortController();
  const db = createPool(config.databaseUrl, {
    max: engineWanted ? 20 : 10,
    applicationName: `posthaste ${options.roles.join('+')}`,
    onError: (error) => {
      if (!stopping.signal.aborted) log.warn({ err: error }, 'a database connection broke');
    },
  });
  options.signal?.addEventListener('abort', () => stopping.abort());
  const closers: Closer[] = [() => db.end()];
  const metrics = createMetrics();

  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    stopped ??= (async () => {
      stopping.abort();
      for (const close of closers.reverse()) {
        try {
          await close(); // each is tried, even when one before it failed
        } catch (error) {
          log.warn({ err: error }, 'a part did not stop cleanly');
        }
      }
    })();
    return stopped;
  };

  try {
    const id = `${hostname()}/${process.pid}/${randomBytes(3).toString('hex')}`;
    let engine: Engine | undefined;
    const hint = createHints(db, log, () => engine);
    let url: string | null = null;
    // The API first: it takes events while the engine still looks for Temporal, and until the engine has stopped.
    if (has('api')) {
      const { startApi } = await import('./api/listen.ts');
      const api = await startApi({
        db,
        config,
        log,
        metricsText: () => metrics.text(),
        poke: () => hint('events'),
        scan: () => hint('work'),
        tellHealth: () => hint('health'),
        wake: async (delivery) => {
          hint('work');
          hint(`wake:${deliveryWorkflowId(delivery)}`);
        },
        readiness: async () => {
          const database = await db.query('select 1').then(
            () => true,
            () => false,
          );
          const checks: Record<string, boolean> = { database };
          if (engineWanted) Object.assign(checks, engine?.checks() ?? { temporal: false });
          return { ok: Object.values(checks).every(Boolean), checks };
        },
      });
      closers.push(() => api.close());
      url = api.url;
    }
    if (engineWanted) {
      // Loaded on demand: a process that only serves the API starts without Temporal's native code.
      const { startEngine } = await import('./engine.ts');
      engine = await startEngine({ ...options, db, id, metrics, stopping: stopping.signal, closers, hint });
    }
    return { url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** In this process relay and scanner are told at once; others hear of it by NOTIFY, at most every 20 ms. */
function createHints(db: Pool, log: Log, local: () => Engine | undefined): (hint: Hint) => void {
  const timers = new Map<Hint, NodeJS.Timeout>();
  return (hint) => {
    const engine = local();
    engine?.poke(hint);
    if (engine?.holdsEveryShard() || timers.has(hint)) return;
    const send = (): void => {
      timers.delete(hint);
      notify(db, hint).catch((error: unknown) =>
        log.warn({ err: error }, 'a hint to the relays was lost; they poll'),
      );
    };
    timers.set(hint, setTimeout(send, engine === undefined ? 2 : 20));
  };
}

/** What the other roles see of the engine. */
export interface Engine {
  poke(hint: Hint): void;
  holdsEveryShard(): boolean;
  checks(): Record<string, boolean>;
}
