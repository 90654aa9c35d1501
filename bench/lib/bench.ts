/**
 * What a scenario works with: a fresh database and Temporal, receiver and publisher processes, Posthaste processes to
 * start and kill, the bare loop, and the bookkeeping that makes figures of it. One for each run of a scenario.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BareOptions, BareResult } from './bare.ts';
import { type Child, startChild } from './child.ts';
import { nowMs, sleep } from './clock.ts';
import { costs, countEvents, type Snapshot, snapshot } from './cost.ts';
import { ADMIN_KEY, type Posthaste, type PosthasteOptions, startPosthaste } from './posthaste.ts';
import type { Publish, Published } from './publisher.ts';
import type { Behaviour, Listening } from './receiver.ts';
import type { Received, Sent } from './reconcile.ts';
import { type Postgres, startBenchTemporal } from './servers.ts';
import { startTemporalServer } from './temporal-server.ts';
import type { Figures } from './types.ts';
import { watchProcesses } from './usage.ts';

const MB = 1024 * 1024;
const file = (name: string): URL => new URL(name, import.meta.url);

export interface BenchOptions {
  postgres: Postgres;
  scale: number;
  /** Folder of the programs of a Temporal server; else the dev server. */
  temporalServer?: string;
  /** Folder for CPU profiles of Posthaste. */
  profileTo?: string;
}

export type Bench = Awaited<ReturnType<typeof openBench>>;

export async function openBench(options: BenchOptions) {
  const folder = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
  const closers: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse()) await closer();
  };
  const child = (name: string, env: Record<string, string> = {}): Child => {
    const started = startChild(file(name), env);
    closers.push(() => started.stop());
    return started;
  };
  try {
    const temporal =
      options.temporalServer === undefined
        ? await startBenchTemporal()
        : await startTemporalServer(options.temporalServer);
    closers.push(() => temporal.stop());
    const database = await options.postgres.createDatabase();
    closers.push(() => database.drop());
    const receiver = child('./receiver.ts');
    const publisher = child('./publisher.ts');
    const port = await receiver.call<number>('listen', { port: 0 } satisfies Listening);
    const running: Posthaste[] = [];
    const processes = watchProcesses(() => running.map((process) => process.pid));
    closers.push(async () => processes.stop());
    closers.push(() => Promise.all(running.map((process) => process.stop())));
    const { db } = database;
    const sources = {
      db,
      postgresPid: options.postgres.pid,
      temporal,
      receiver,
      publisher,
      posthasteCpuMs: () => processes.cpuMs(),
    };
    let published = 0;

    return {
      db,
      temporal,
      receiver: {
        port,
        url: (group: string, endpoint: number | string) => `http://127.0.0.1:${port}/${group}/${endpoint}`,
        set: (groups: Record<string, Behaviour>) => receiver.call<void>('set', groups),
        listen: (listening: Listening) => receiver.call<number>('listen', listening),
        close: (at: number) => receiver.call<void>('close', at),
        counts: () => receiver.call<{ delivered: number; requests: number; connections: number }>('counts'),
        /** Resolves with the time of the `count`-th 2xx, or null when it is not there after `timeoutMs`. */
        reached: (count: number, timeoutMs: number): Promise<number | null> =>
          Promise.race([receiver.call<number>('reached', count), sleep(timeoutMs).then(() => null)]),
        async received(): Promise<Received[]> {
          const path = join(folder, 'received');
          await receiver.call('write', path);
          return (await lines(path)).map(([at, status, to, id]) => ({
            at: Number(at),
            status: Number(status),
            path: to!,
            id: id!,
          }));
        },
      },
      /** A count of the full size, made smaller by --scale, never below `least`. */
      count: (full: number, least = 100): number => Math.max(least, Math.round(full * options.scale)),
      /** A duration of the full size in seconds, made shorter by --scale. */
      seconds: (full: number, least = 5): number => Math.max(least, Math.round(full * options.scale)),
      scale: options.scale,
      /** The stretch that was measured, ms of clock.ts; set by the scenario, for --cpu-prof. */
      window: undefined as { from: number; to: number } | undefined,

      /** `<prefix>0`, `<prefix>1` … */
      names: (prefix: string, count: number): string[] =>
        Array.from({ length: count }, (_, i) => `${prefix}${i}`),

      async start(
        role: PosthasteOptions['role'] = 'all',
        env: Record<string, string> = {},
      ): Promise<Posthaste> {
        await temporal.settled();
        const process = await startPosthaste({
          role,
          databaseUrl: database.url,
          temporalAddress: temporal.address,
          env,
          ...(options.profileTo === undefined ? {} : { profileTo: options.profileTo }),
        });
        running.push(process);
        return process;
      },

      async publish(
        to: Posthaste,
        what: Omit<Publish, 'port' | 'key' | 'file'>,
      ): Promise<Published & { sent: Sent[] }> {
        const path = join(folder, `sent-${++published}`);
        const result = await publisher.call<Published>('publish', {
          ...what,
          port: to.port!,
          key: ADMIN_KEY,
          file: path,
        } satisfies Publish);
        const sent = (await lines(path)).map(([at, id, tenant]) => ({
          at: Number(at),
          id: id!,
          tenant: tenant!,
        }));
        return { ...result, sent };
      },

      /** The bare loop, now, alone: the caller has no load running. */
      async bare(what: Partial<BareOptions> = {}): Promise<BareResult> {
        const loop = startChild(file('./bare.ts'));
        try {
          return await loop.call<BareResult>('run', {
            origin: `http://127.0.0.1:${port}`,
            count: Math.max(2_000, Math.round(20_000 * options.scale)),
            connections: 50,
            bytes: 1_000,
            ...what,
          });
        } finally {
          await loop.stop();
        }
      },

      snapshot: (): Promise<Snapshot> => snapshot(sources),
      costs,

      /** Waits until nothing is unfinished and nothing waits in the outbox; answers whether that came true. */
      async quiet(timeoutMs: number, where = 'true'): Promise<boolean> {
        for (const end = nowMs() + timeoutMs; nowMs() < end; await sleep(200)) {
          const { rows } = await db.query(
            `select exists (select 1 from posthaste.outbox where ${where}) or exists (select 1 from posthaste.work where ${where}) as busy`,
          );
          if (!rows[0].busy) return true;
        }
        return false;
      },

      /** Memory of Posthaste's processes and history events per delivery: at the end of a scenario. */
      async totals(deliveries: number): Promise<Figures> {
        const { workflows, events } = await countEvents(temporal.address);
        return {
          rss_most_mb: processes.mostRssBytes() / MB,
          rss_end_mb: processes.rssBytes() / MB,
          temporal_workflows: workflows,
          temporal_events: events / Math.max(1, deliveries),
        };
      },

      complaints: (): string[] => running.flatMap((process) => process.complaints),
      /** Stops Posthaste in order, so that a CPU profile is written. */
      stopPosthaste: () => Promise.all(running.map((process) => process.stop())),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function lines(path: string): Promise<string[][]> {
  const text = await readFile(path, 'utf8');
  return text === '' ? [] : text.split('\n').map((line) => line.split('\t'));
}
