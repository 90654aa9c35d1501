/** A process with relay and worker inside the test, on its own database and namespace. */
import type { Config } from '../../src/config.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { parseEgressAllow } from '../../src/domain/addresses.ts';
import { createLog } from '../../src/log.ts';
import { type Role, type RunningProcess, startProcess } from '../../src/process.ts';
import { cleanUpLater } from './clean-up.ts';
import { createDatabase, type TestDatabase } from './postgres.ts';
import { masterKeys } from './seed.ts';
import { createNamespace } from './temporal.ts';

export interface TestEngine {
  db: Pool;
  database: TestDatabase;
  config: Config;
  /** Starts a further process of these roles; stopped after the file at the latest. */
  start(roles?: Role[]): Promise<RunningProcess>;
}

export const ADMIN_KEY = 'phk_test_0123456789abcdef0123456789abcdef';

export interface TestEngineOptions {
  grouping?: 'auto' | 'never';
  /** False: the namespace has no search attributes of ours. */
  attributes?: boolean;
  /** A Temporal of the test's own; its default namespace is used. */
  temporalAddress?: string;
  /** A migrated database of the test's own; otherwise one is made. */
  database?: TestDatabase;
}

/** Call in beforeAll, beforeEach or a test. Everything loopback may be sent to. */
export async function prepareEngine(options: TestEngineOptions = {}): Promise<TestEngine> {
  const database = options.database ?? (await createDatabase());
  const namespace =
    options.temporalAddress === undefined
      ? await createNamespace(options.attributes === undefined ? {} : { attributes: options.attributes })
      : { address: options.temporalAddress, namespace: 'default' };
  const config: Config = {
    port: 0,
    host: '127.0.0.1',
    databaseUrl: database.url,
    databaseDirectUrl: database.url,
    temporal: {
      given: true,
      address: namespace.address,
      namespace: namespace.namespace,
      connectionOptions: { address: namespace.address },
    },
    temporalCli: undefined,
    dataDir: '.posthaste',
    adminKey: ADMIN_KEY,
    masterKeys,
    grouping: options.grouping ?? 'auto',
    maxEventBytes: 262_144,
    retentionDays: 30,
    egressAllow: parseEgressAllow('127.0.0.0/8:*'),
    egressProxy: undefined,
    smtpUrl: undefined,
    mailFrom: undefined,
    selfCheck: [],
    logLevel: process.env.LOG_LEVEL ?? 'silent',
  };
  const db = createPool(database.url, { max: 5 });
  const running: RunningProcess[] = [];
  cleanUpLater(async () => {
    await Promise.all(running.map((process) => process.stop()));
    await db.end();
  });
  const log = createLog({ level: config.logLevel });
  return {
    db,
    database,
    config,
    async start(roles = ['relay', 'worker']) {
      const process = await startProcess({ config, roles, log });
      running.push(process);
      return process;
    },
  };
}

/** Resolves when the query's first row satisfies; polls the database, which has no event for it. */
export async function until<T>(
  probe: () => Promise<T>,
  good: (value: T) => boolean,
  timeoutMs = 45_000,
): Promise<T> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (good(value)) return value;
    if (Date.now() > end) throw new Error(`still ${JSON.stringify(value)} after ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
