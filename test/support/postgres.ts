/**
 * A migrated database of its own for each test file. Dropped when the file is done.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { cleanUpLater } from './clean-up.ts';
import { shared } from './shared.ts';
import { execute, withDatabase } from './template.ts';

export interface TestDatabase {
  name: string;
  /** As a superuser; what roles under test are given as DATABASE_URL. */
  url: string;
  /** Another database of the same cluster, for tests about strangers' transactions. */
  adminUrl: string;
  drop(): Promise<void>;
}

/** Call it in `beforeAll`; the database is dropped after the file's tests. `empty` leaves out the migrations. */
export async function createDatabase(options: { empty?: boolean } = {}): Promise<TestDatabase> {
  const { adminUrl, template } = await shared('postgres');
  const name = `posthaste_test_${randomBytes(5).toString('hex')}`;
  await retryBusyTemplate(() =>
    execute(adminUrl, `create database ${name} template ${options.empty ? 'template0' : template}`),
  );
  const drop = () => execute(adminUrl, `drop database if exists ${name} with (force)`);
  cleanUpLater(drop);
  return { name, url: withDatabase(adminUrl, name), adminUrl, drop };
}

/** PostgreSQL refuses to clone a database that somebody, autovacuum included, is connected to just then. */
async function retryBusyTemplate(create: () => Promise<void>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await create();
    } catch (error) {
      if ((error as { code?: string }).code !== '55006' || tries === 50) throw error;
      await delay(100);
    }
  }
}
