/**
 * An embedded PostgreSQL 18 for `npm start` and the tests: made on first use, kept between runs, on loopback only.
 * Called by embedded/index.ts and the test harness. Survives whatever ended the previous run.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { type Child, startChild } from './child.ts';
import { endOrphan } from './orphans.ts';
import { choosePort } from './ports.ts';
import { findPostgresProgram, type PostgresProgram, SYSTEM_FOLDER } from './postgres-program.ts';
import { canReach, type User, unprivilegedUser } from './unprivileged.ts';

export interface PostgresOptions {
  /** Data, password and log live here. */
  directory: string;
  /** Told one line when something differs from the usual. */
  notice: (text: string) => void;
  /** Taken when free. */
  port?: number;
  /** False trades safety against power loss for speed: for tests only. */
  durable?: boolean;
}

export interface EmbeddedPostgres {
  url: string;
  port: number;
  /** Where the data really is: see `dataFolder`. */
  directory: string;
  exited: Promise<string>;
  stop(): Promise<void>;
}

const USER = 'posthaste';
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  shared_buffers: '256MB',
  max_connections: '300', // 20 for each process with an engine: several workers beside `npm start`
  max_wal_size: '2GB',
  synchronous_commit: 'on',
  fsync: 'on',
};
const FAST_SETTINGS = { fsync: 'off', full_page_writes: 'off', max_wal_size: '1GB' };

export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const user = unprivilegedUser();
  const program = findPostgresProgram(user);
  const base = dataFolder(options.directory, user, options.notice);
  const data = join(base, 'postgres');
  const password = readOrMakePassword(join(base, 'postgres-password'));
  if (existsSync(join(data, 'PG_VERSION'))) await clearPreviousRun(data);
  else await initialise({ program, base, data, password, user, durable: options.durable !== false });
  const port = await choosePort(options.port ?? 5433, (other) =>
    options.notice(`Port ${options.port ?? 5433} is taken; the embedded PostgreSQL listens on ${other}.`),
  );
  const settings = { ...SETTINGS, ...(options.durable === false ? FAST_SETTINGS : {}) };
  const child = await startChild({
    name: 'PostgreSQL',
    command: program.postgres,
    args: [
      '-D',
      data,
      '-p',
      String(port),
      ...Object.entries(settings).flatMap(([k, v]) => ['-c', `${k}=${v}`]),
    ],
    logFile: join(base, 'postgres.log'),
    cwd: base,
    user,
  });
  const urlOf = (database: string) => `postgres://${USER}:${password}@127.0.0.1:${port}/${database}`;
  try {
    await ready(child, urlOf('postgres'));
  } catch (error) {
    await child.stop();
    throw error;
  }
  return { url: urlOf(USER), port, directory: base, exited: child.exited, stop: () => child.stop() };
}

/**
 * The folder for the data: the wanted one, unless we are root and the user that PostgreSQL runs as can't reach it
 * (a checkout below /root); then one under /var/lib, which the wanted folder names, so that whoever removes the
 * wanted folder starts afresh.
 */
function dataFolder(wanted: string, user: User | null, notice: (text: string) => void): string {
  mkdirSync(wanted, { recursive: true, mode: 0o700 });
  if (user === null) return wanted;
  chmodSync(wanted, 0o711);
  if (canReach(wanted, user)) return wanted;
  const pointer = join(wanted, 'postgres-folder');
  if (!existsSync(pointer)) {
    mkdirSync(SYSTEM_FOLDER, { recursive: true });
    chmodSync(SYSTEM_FOLDER, 0o755);
    writeFileSync(pointer, mkdtempSync(join(SYSTEM_FOLDER, 'data-')));
  }
  const other = readFileSync(pointer, 'utf8').trim();
  mkdirSync(other, { recursive: true });
  chmodSync(other, 0o711);
  notice(`User ${user.name} can't reach ${wanted}; the embedded PostgreSQL keeps its data in ${other}.`);
  return other;
}

function readOrMakePassword(file: string): string {
  if (!existsSync(file)) writeFileSync(file, randomBytes(24).toString('base64url'), { mode: 0o600 });
  return readFileSync(file, 'utf8').trim();
}

/** A crash may leave a running server, or a lock file that names a pid which now belongs to somebody else. */
async function clearPreviousRun(data: string): Promise<void> {
  const lock = join(data, 'postmaster.pid');
  if (!existsSync(lock)) return;
  await endOrphan(Number(readFileSync(lock, 'utf8').split('\n')[0]), data);
  rmSync(lock, { force: true });
}

interface Initialise {
  program: PostgresProgram;
  base: string;
  data: string;
  password: string;
  user: User | null;
  durable: boolean;
}

/** Makes the cluster beside its final place and renames it, so that an interrupted first start leaves no half of one. */
async function initialise({ program, base, data, password, user, durable }: Initialise): Promise<void> {
  const fresh = `${data}.new`;
  const passwordFile = join(base, 'postgres-password.tmp');
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(fresh, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (user !== null) for (const path of [fresh, passwordFile]) chownSync(path, user.uid, user.gid);
  const locale = ['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
  const access = [`--username=${USER}`, '--auth=scram-sha-256', `--pwfile=${passwordFile}`];
  try {
    await promisify(execFile)(
      program.initdb,
      [`--pgdata=${fresh}`, ...access, ...locale, ...(durable ? [] : ['--no-sync'])],
      { cwd: base, env: { PATH: process.env.PATH, LC_ALL: 'C' }, ...(user ?? {}) },
    );
  } catch (error) {
    throw new Error(`The embedded PostgreSQL could not be set up: ${(error as Error).message}`, {
      cause: error,
    });
  } finally {
    rmSync(passwordFile, { force: true });
  }
  renameSync(fresh, data);
}

/** Connects until the server answers, and makes our database if it is missing. */
async function ready(child: Child, adminUrl: string): Promise<void> {
  let ended: string | undefined;
  void child.exited.then((reason) => {
    ended = reason;
  });
  const deadline = performance.now() + 60_000; // recovery after a crash may take a while
  for (let pause = 10; ; pause = Math.min(pause * 2, 200)) {
    const client = new pg.Client({ connectionString: adminUrl, connectionTimeoutMillis: 5_000 });
    client.on('error', () => {});
    try {
      await client.connect();
      const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [USER]);
      if (rowCount === 0) await client.query(`create database ${USER}`);
      return;
    } catch (error) {
      if (ended !== undefined) throw new Error(`The embedded PostgreSQL ${ended}:\n${child.tail()}`);
      if (performance.now() > deadline) {
        throw new Error(
          `The embedded PostgreSQL does not answer: ${(error as Error).message}\n${child.tail()}`,
        );
      }
    } finally {
      await client.end().catch(() => {});
    }
    await delay(pause);
  }
}
