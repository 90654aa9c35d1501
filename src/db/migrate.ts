/**
 * Plain SQL migrations: forward only, one transaction each, under one advisory lock, with checksums. Tables change in
 * numbered files, each applied once and never edited again. Functions live in migrations/functions, where a file says
 * what they are now; whatever differs from what the database has is applied, after the tables.
 * Called by `posthaste migrate`, by `npm start`, and by the tests. Any number of processes may call it at once.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

const FOLDER = fileURLToPath(new URL('../../migrations/', import.meta.url));
const LOCK = 7407300;
/** Numbered files of old, whose functions moved to migrations/functions. */
const RETIRED = [
  '0004_fan_out.sql',
  '0005_verbs.sql',
  '0006_scan.sql',
  '0007_operators.sql',
  '0008_planning.sql',
  '0010_api.sql',
];

export interface MigrateResult {
  applied: string[];
  partitions: number;
}

interface Migration {
  name: string;
  sql: string;
  checksum: string;
}

async function readMigrations(folder: '' | 'functions/'): Promise<Migration[]> {
  const names = (await readdir(FOLDER + folder)).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (file) => {
      const sql = await readFile(FOLDER + folder + file, 'utf8');
      return { name: folder + file, sql, checksum: createHash('sha256').update(sql).digest('hex') };
    }),
  );
}

/** All of them in one transaction: they belong together. */
async function apply(client: pg.Client, migrations: readonly Migration[]): Promise<void> {
  let at = '';
  await client.query('begin');
  try {
    for (const { name, sql, checksum } of migrations) {
      at = name;
      await client.query(sql);
      await client.query(
        `insert into posthaste.migrations (name, checksum) values ($1, $2)
         on conflict (name) do update set checksum = excluded.checksum, applied_at = now()`,
        [name, checksum],
      );
    }
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw new Error(`Migration ${at} failed: ${(error as Error).message}`, { cause: error });
  }
}

/**
 * Brings the database to this version and makes the next 14 day partitions.
 * Throws when an applied migration differs from its file, or when the database is newer than this program.
 */
export async function migrate(
  databaseUrl: string,
  options: { maxEventBytes?: number; retentionDays?: number } = {},
): Promise<MigrateResult> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'posthaste migrate' });
  await client.connect();
  try {
    await client.query('select pg_advisory_lock($1)', [LOCK]);
    const version = Number((await client.query('show server_version_num')).rows[0].server_version_num);
    if (version < 150000) throw new Error(`PostgreSQL 15 or newer is needed; this server is ${version}.`);
    await client.query('create schema if not exists posthaste');
    await client.query(`create table if not exists posthaste.migrations (
      name text primary key, checksum text not null, applied_at timestamptz not null default now())`);
    const done = new Map<string, string>(
      (await client.query('select name, checksum from posthaste.migrations')).rows.map((row) => [
        row.name,
        row.checksum,
      ]),
    );
    const applied: string[] = [];
    const migrations = await readMigrations('');
    for (const migration of migrations) {
      const checksum = done.get(migration.name);
      if (checksum === migration.checksum) continue;
      if (checksum !== undefined) {
        throw new Error(
          `Migration ${migration.name} was applied with other content. Restore the file it was applied from; add a new migration for new changes.`,
        );
      }
      await apply(client, [migration]);
      applied.push(migration.name);
    }
    const functions = await readMigrations('functions/');
    const known = new Set([...migrations, ...functions].map(({ name }) => name).concat(RETIRED));
    const unknown = [...done.keys()].filter((name) => !known.has(name));
    if (unknown.length > 0) {
      throw new Error(
        `The database has migrations this version lacks (${unknown.join(', ')}). Run a newer Posthaste.`,
      );
    }
    const changed = functions.filter(({ name, checksum }) => done.get(name) !== checksum);
    if (changed.length > 0) await apply(client, changed);
    applied.push(...changed.map(({ name }) => name));
    if (options.maxEventBytes !== undefined) {
      await client.query('update posthaste.settings set max_event_bytes = $1 where max_event_bytes <> $1', [
        options.maxEventBytes,
      ]);
    }
    if (options.retentionDays !== undefined) {
      await client.query('update posthaste.settings set retention_days = $1 where retention_days <> $1', [
        options.retentionDays,
      ]);
    }
    const partitions = (await client.query('select posthaste.ensure_partitions() as made')).rows[0]
      .made as number;
    return { applied, partitions };
  } finally {
    await client.end(); // also releases the lock
  }
}
