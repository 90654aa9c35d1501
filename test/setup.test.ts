/** The harness itself: what every other test relies on. */
import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { createDatabase, type TestDatabase } from './support/postgres.ts';

describe('createDatabase', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createDatabase();
  });

  it('gives each file a migrated database of its own', async () => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    const { rows } = await client.query('select count(*)::int as applied from posthaste.migrations');
    await client.end();
    expect(rows[0].applied).toBeGreaterThan(0);
  });
});
