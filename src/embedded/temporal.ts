/**
 * An embedded Temporal dev server for `npm start` and the tests, on loopback only. Called by embedded/index.ts and
 * the test harness. The dev server is for trying Posthaste out: docs/configuration.md says how to use a real one.
 */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Connection } from '@temporalio/client';
import { msToTs } from '@temporalio/common/lib/time.js';
import { type Child, startChild } from './child.ts';
import { endOrphan } from './orphans.ts';
import { choosePort } from './ports.ts';

export interface TemporalOptions {
  /** Path of the `temporal` program: see scripts/temporal-cli.mjs. */
  cli: string;
  /** Data, log and pid live here. */
  directory: string;
  notice: (text: string) => void;
  /** Keep workflows between runs. */
  persistent?: boolean;
  /** Taken when free. */
  port?: number;
  /** The Web UI's; 0 runs none. */
  uiPort?: number;
  /** Days that ended workflows stay in the Web UI. */
  retentionDays?: number;
  /** Passed to `temporal server start-dev` as they are. */
  extraArgs?: string[];
}

export interface EmbeddedTemporal {
  address: string;
  uiUrl: string | null;
  exited: Promise<string>;
  stop(): Promise<void>;
}

/** What Posthaste's workflows carry for the Web UI's filters. */
export const SEARCH_ATTRIBUTES = {
  WhTenant: 'Keyword',
  WhEndpoint: 'Keyword',
  WhEventType: 'Keyword',
  WhState: 'Keyword',
  WhAttempt: 'Int',
} as const;

export async function startTemporal(options: TemporalOptions): Promise<EmbeddedTemporal> {
  const { directory, notice } = options;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const pidFile = join(directory, 'temporal.pid');
  const data = join(directory, 'temporal.db');
  if (existsSync(pidFile)) await endOrphan(Number(readFileSync(pidFile, 'utf8')), data);
  const wanted = options.port ?? 7233;
  const port = await choosePort(wanted, (other) =>
    notice(`Port ${wanted} is taken; the embedded Temporal server listens on ${other}.`),
  );
  const wantedUi = options.uiPort ?? 8233;
  const uiPort =
    wantedUi === 0
      ? 0
      : await choosePort(wantedUi, (other) =>
          notice(`Port ${wantedUi} is taken; Temporal’s Web UI is on ${other}.`),
        );
  const attributes = Object.entries(SEARCH_ATTRIBUTES).flatMap(([k, v]) => [
    '--search-attribute',
    `${k}=${v}`,
  ]);
  const child = await startChild({
    name: 'Temporal',
    command: options.cli,
    args: [
      ...['server', 'start-dev', '--disable-config-file', '--disable-config-env', '--log-level', 'warn'],
      ...['--ip', '127.0.0.1', '--port', String(port), ...attributes],
      ...(uiPort === 0 ? ['--headless'] : ['--ui-port', String(uiPort), '--ui-disable-news-fetch']),
      ...(options.persistent === false ? [] : ['--db-filename', data]),
      ...(options.extraArgs ?? []),
    ],
    logFile: join(directory, 'temporal.log'),
  });
  writeFileSync(pidFile, String(child.pid));
  const stop = async () => {
    await child.stop();
    rmSync(pidFile, { force: true });
  };
  const address = `127.0.0.1:${port}`;
  try {
    await ready(child, address, options.retentionDays ?? 3);
  } catch (error) {
    await stop();
    throw error;
  }
  return { address, uiUrl: uiPort === 0 ? null : `http://127.0.0.1:${uiPort}`, exited: child.exited, stop };
}

/** Connects until the server knows its default namespace, and sets how long ended workflows are kept there. */
async function ready(child: Child, address: string, retentionDays: number): Promise<void> {
  let ended: string | undefined;
  void child.exited.then((reason) => {
    ended = reason;
  });
  const deadline = performance.now() + 60_000;
  for (let pause = 20; ; pause = Math.min(pause * 1.5, 200)) {
    let connection: Connection | undefined;
    try {
      connection = await Connection.connect({ address, connectTimeout: 2_000 });
      await connection.workflowService.updateNamespace({
        namespace: 'default',
        config: { workflowExecutionRetentionTtl: msToTs(`${retentionDays} days`) },
      });
      return;
    } catch (error) {
      if (ended !== undefined) throw new Error(`The embedded Temporal server ${ended}:\n${child.tail()}`);
      if (performance.now() > deadline) {
        throw new Error(
          `The embedded Temporal server does not answer: ${(error as Error).message}\n${child.tail()}`,
        );
      }
    } finally {
      await connection?.close();
    }
    await delay(pause);
  }
}
