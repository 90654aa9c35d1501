/** The harness itself: what every other test relies on. */
import { defineSearchAttributeKey, SearchAttributeType, TypedSearchAttributes } from '@temporalio/common';
import pg from 'pg';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createDatabase, type TestDatabase } from './support/postgres.ts';
import { startRole } from './support/process.ts';
import { startReceiver, type TestReceiver } from './support/receiver.ts';
import { createNamespace } from './support/temporal.ts';

async function count(url: string, table: string): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(`select count(*)::int as n from ${table}`).finally(() => client.end());
  return rows[0].n;
}

describe('createDatabase', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createDatabase();
  });

  it('gives each caller a migrated database of its own', async () => {
    const other = await createDatabase();
    expect(other.name).not.toBe(database.name);
    expect(await count(database.url, 'posthaste.migrations')).toBeGreaterThan(0);
    expect(await count(other.url, 'posthaste.migrations')).toBeGreaterThan(0);
  });

  it('gives an empty one when asked', async () => {
    const { url } = await createDatabase({ empty: true });
    await expect(count(url, 'posthaste.migrations')).rejects.toThrow(/does not exist/);
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
    const { searchAttributes } = await handle.describe();
    expect(searchAttributes).toMatchObject({ WhTenant: ['t1'], WhAttempt: [1] });
    await handle.terminate();
  });
});

describe('startReceiver', () => {
  let receiver: TestReceiver;
  afterEach(() => receiver.close());
  const post = (path: string, body: Buffer | string = '') =>
    fetch(receiver.url + path, { method: 'POST', body });

  it('keeps every request exactly as it came', async () => {
    receiver = await startReceiver();
    const body = Buffer.from([0, 255, 10, 195]);
    await fetch(`${receiver.url}/a?b=c`, {
      method: 'PUT',
      body,
      headers: { 'X-Case': 'Kept', 'webhook-id': 'evt_1' },
    });
    const [request] = await receiver.waitFor(1);
    expect(request).toMatchObject({ method: 'PUT', path: '/a?b=c', n: 0, webhookId: 'evt_1', body });
    expect(request?.headers['x-case']).toBe('Kept');
    expect(request?.rawHeaders).toContain('X-Case');
  });

  it('answers as the test says, by number of the request', async () => {
    receiver = await startReceiver({
      respond: (_, n) => (n < 2 ? { status: 503 } : { status: 200, body: 'ok' }),
    });
    const answers = [await post('/'), await post('/'), await post('/')];
    expect(answers.map(({ status }) => status)).toEqual([503, 503, 200]);
    receiver.respond(() => ({ destroy: true }));
    await expect(post('/')).rejects.toThrow();
  });

  it('counts how many requests were open at once', async () => {
    const gate = Promise.withResolvers<void>();
    receiver = await startReceiver({ respond: () => ({ until: gate.promise }) });
    const open = Promise.all([post('/1'), post('/2'), post('/3')]);
    await receiver.waitFor(3);
    gate.resolve();
    await open;
    await post('/4');
    expect(receiver.highWater()).toBe(3);
    expect(receiver.requests.at(-1)?.concurrent).toBe(1);
  });

  it('resolves a wait by a later request, and says what it got when none comes', async () => {
    receiver = await startReceiver();
    const found = receiver.waitForRequest(({ path }) => path === '/yes');
    await post('/no');
    await post('/yes');
    expect((await found).n).toBe(1);
    await expect(receiver.waitFor(3, 10)).rejects.toThrow(
      'No 3 requests within 10 ms; the receiver got 2 requests',
    );
  });
});

describe('startRole', () => {
  it('runs the built program, which refuses an empty environment with code 2 and all that is missing', async () => {
    const role = await startRole(['all'], {});
    expect(await role.exited).toEqual({ code: 2, signal: null });
    const text = role.lines.join('\n');
    expect(text).toContain('DATABASE_URL must be a URL');
    expect(text).toContain('POSTHASTE_MASTER_KEYS must be');
    expect(text).not.toContain('    at ');
  }, 60_000);

  it('says what the process said when a line does not come', async () => {
    const role = await startRole(['migrate'], { DATABASE_URL: 'nonsense' });
    await expect(role.waitForLine(/ready/)).rejects.toThrow(/ended before .*DATABASE_URL must be/s);
  }, 60_000);
});
