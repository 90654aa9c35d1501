/**
 * The servers a benchmark runs against: one embedded PostgreSQL (as `npm start` has it, and pg_stat_statements to
 * count with), a fresh database and a fresh Temporal dev server for each run, so that no run inherits rows, dead
 * tuples or sleeping workflows.
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../src/db/migrate.ts';
import { startPostgres } from '../../src/embedded/postgres.ts';
import { startTemporal } from '../../src/embedded/temporal.ts';
import { ensureTemporalCli } from '../../src/embedded/temporal-cli.ts';
import { nowMs, sleep } from './clock.ts';

/** A Temporal server that was just made works on itself for a while. */
const SETTLE_MS = 8_000;
const TEMPLATE = 'bench_template';
/** Our own statements go under another role, so that they are not counted as Posthaste's. */
const HARNESS_ROLE = 'bench';

export interface Database {
  /** What Posthaste is given. */
  url: string;
  /** The harness's own connections. */
  db: pg.Pool;
  drop(): Promise<void>;
}

export interface Postgres {
  pid: number;
  version: string;
  createDatabase(): Promise<Database>;
  stop(): Promise<void>;
}

export interface Temporal {
  pid: number;
  /** Of its own PostgreSQL, if it has one. */
  postgresPid?: number;
  address: string;
  metricsUrl: string;
  /** Resolves when the server has settled. */
  settled(): Promise<void>;
  stop(): Promise<void>;
}

const noticed = (): void => {};
const named = (url: string, database: string, user?: string): string => {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  if (user !== undefined) changed.username = user;
  return changed.href;
};

async function once(url: string, ...statements: string[]): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    let result: pg.QueryResult | undefined;
    for (const statement of statements) result = await client.query(statement);
    return result!;
  } finally {
    await client.end();
  }
}

export async function startBenchPostgres(): Promise<Postgres> {
  const directory = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
  let server = await startPostgres({ directory, notice: noticed, port: 0 });
  await once(
    server.url,
    `alter system set shared_preload_libraries = 'pg_stat_statements'`,
    `alter system set pg_stat_statements.track = 'top'`,
  );
  await server.stop();
  server = await startPostgres({ directory, notice: noticed, port: server.port });
  const password = new URL(server.url).password;
  await once(
    server.url,
    `create role ${HARNESS_ROLE} superuser login password '${password}'`,
    `create database ${TEMPLATE}`,
  );
  await once(named(server.url, TEMPLATE), 'create extension pg_stat_statements');
  await migrate(named(server.url, TEMPLATE));
  const { rows } = await once(server.url, 'show server_version');
  let databases = 0;
  return {
    pid: Number(readFileSync(join(server.directory, 'postgres', 'postmaster.pid'), 'utf8').split('\n')[0]),
    version: rows[0].server_version,
    async createDatabase() {
      const name = `bench_${++databases}`;
      await once(server.url, `create database ${name} template ${TEMPLATE}`, 'checkpoint');
      const db = new pg.Pool({
        connectionString: named(server.url, name, HARNESS_ROLE),
        max: 4,
        application_name: 'bench',
      });
      db.on('error', noticed);
      return {
        url: named(server.url, name),
        db,
        async drop() {
          await db.end();
          await once(server.url, `drop database ${name} with (force)`);
        },
      };
    },
    async stop() {
      await server.stop();
      await rm(server.directory, { recursive: true, force: true });
      await rm(directory, { recursive: true, force: true });
    },
  };
}

export async function startBenchTemporal(): Promise<Temporal> {
  const directory = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
  const cli = await ensureTemporalCli(console.error);
  const metrics = await freePort();
  const server = await startTemporal({
    cli,
    directory,
    notice: noticed,
    port: 0,
    uiPort: 0,
    extraArgs: ['--metrics-port', String(metrics)],
  });
  const readyAt = nowMs() + SETTLE_MS;
  return {
    pid: Number(readFileSync(join(directory, 'temporal.pid'), 'utf8')),
    address: server.address,
    metricsUrl: `http://127.0.0.1:${metrics}/metrics`,
    settled: () => sleep(readyAt - nowMs()),
    async stop() {
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** A loopback port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject).listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
