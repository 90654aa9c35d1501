/**
 * Plain SQL migrations: forward only, one transaction each, under one advisory lock, with checksums.
 * Called by `posthaste migrate`, by `npm start`, and by the tests. Any number of processes may call it at once.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

const FOLDER = fileURLToPath(new URL('../../migrations/', import.meta.url));
const LOCK = 7407300;

export interface MigrateResult {
  applied: string[];
  partitions: number;
}

interface Migration {
  name: string;
  sql: string;
  checksum: string;
}

async function readMigrations(): Promise<Migration[]> {
  const names = (await readdir(FOLDER)).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (name) => {
      const sql = await readFile(FOLDER + name, 'utf8');
      return { name, sql, checksum: createHash('sha256').update(sql).digest('hex') };
    }),
  );
}

/**
 * Brings the database to this version and makes the next 14 day partitions.
 * Throws when an applied migration differs from its file, or when the database is newer than this program.
 */
export async function migrate(
  databaseUrl: string,
  options: { maxEventBytes?: number } = {},
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
    const migrations = await readMigrations();
    for (const migration of migrations) {
      const checksum = done.get(migration.name);
      if (checksum === migration.checksum) continue;
      if (checksum !== undefined) {
        throw new Error(
          `Migration ${migration.name} was applied with other content. Restore the file it was applied from; add a new migration for new changes.`,
        );
      }
      await client.query('begin');
      try {
        await client.query(migration.sql);
        await client.query('insert into posthaste.migrations (name, checksum) values ($1, $2)', [
          migration.name,
          migration.checksum,
        ]);
        await client.query('commit');
      } catch (error) {
        await client.query('rollback');
        throw new Error(`Migration ${migration.name} failed: ${(error as Error).message}`, { cause: error });
      }
      applied.push(migration.name);
    }
    const known = new Set(migrations.map((migration) => migration.name));
    const unknown = [...done.keys()].filter((name) => !known.has(name));
    if (unknown.length > 0) {
      throw new Error(
        `The database has migrations this version lacks (${unknown.join(', ')}). Run a newer Posthaste.`,
      );
    }
    if (options.maxEventBytes !== undefined) {
      await client.query('update posthaste.settings set max_event_bytes = $1 where max_event_bytes <> $1', [
        options.maxEventBytes,
      ]);
    }
    const partitions = (await client.query('select posthaste.ensure_partitions() as made')).rows[0]
      .made as number;
    return { applied, partitions };
  } finally {
    await client.end(); // also releases the lock
  }
}
