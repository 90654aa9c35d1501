/**
 * The migrated database that every test file's own database is cloned from: cloning takes tens of milliseconds,
 * migrating takes longer. Called by global-setup.ts once per run.
 */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { migrate } from '../../src/db/migrate.ts';

/** The same server and credentials, another database. */
export function withDatabase(url: string, database: string): string {
  const other = new URL(url);
  other.pathname = `/${database}`;
  return other.href;
}

/** Runs one statement on a connection of its own. */
export async function execute(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

export async function makeTemplate(adminUrl: string): Promise<{ template: string; drop(): Promise<void> }> {
  const template = `posthaste_template_${randomBytes(4).toString('hex')}`;
  await execute(adminUrl, `create database ${template}`);
  await migrate(withDatabase(adminUrl, template));
  return { template, drop: () => execute(adminUrl, `drop database if exists ${template} with (force)`) };
}
