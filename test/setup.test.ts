/** The harness itself: what every other test relies on. */

import { defineSearchAttributeKey, SearchAttributeType, TypedSearchAttributes } from '@temporalio/common';
import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { createDatabase, type TestDatabase } from './support/postgres.ts';
import { createNamespace } from './support/temporal.ts';

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

describe('createNamespace', () => {
  it('gives each file a Temporal namespace that takes our search attributes at once', async () => {
    const { client } = await createNamespace();
    const attributes = new TypedSearchAttributes([
      { key: defineSearchAttributeKey('WhTenant', SearchAttributeType.KEYWORD), value: 't1' },
      { key: defineSearchAttributeKey('WhAttempt', SearchAttributeType.INT), value: 1 },
    ]);
    const handle = await client.workflow.start('nobody', {
      taskQueue: 'nobody',
      workflowId: 'w',
      typedSearchAttributes: attributes,
    });
    const found: string[] = [];
    for await (const { workflowId } of client.workflow.list({ query: "WhTenant = 't1'" }))
      found.push(workflowId);
    await handle.terminate();
    expect(found).toEqual(['w']);
  });
});
