/** Days that go, and what outlives them: dead letters with their bodies, and whatever is unfinished. */
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { createPool } from '../../src/db/pool.ts';
import { dropDay, oldestDay } from '../../src/db/retention.ts';
import { createLog } from '../../src/log.ts';
import { retire } from '../../src/relay/retention.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { createDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

const PARENTS = ['events', 'event_fanouts', 'deliveries', 'attempts'];
const log = createLog({ level: 'silent' });
let engine: TestEngine;
let url: string;
beforeAll(async () => {
  engine = await prepareEngine();
  url = (await engine.start(['api', 'relay', 'worker'])).url!;
});

// biome-ignore lint/suspicious/noExplicitAny: answers are asserted, not typed
const call = async (method: string, path: string, accept = 'application/json'): Promise<any> => {
  const headers = { authorization: `Bearer ${ADMIN_KEY}`, accept };
  const response = await fetch(url + path, { method, headers });
  const text = await response.text();
  return { status: response.status, text, json: accept.endsWith('ndjson') ? undefined : JSON.parse(text) };
};
const one = async (sql: string, ...values: unknown[]) => (await engine.db.query(sql, values)).rows[0];

/** Everything that is accepted and fanned out from now on happens so many days ago, on a day with partitions. */
async function daysAgo(days: number, db = engine.db): Promise<string> {
  const { rows } = await db.query(
    `select ((now() at time zone 'UTC')::date - $1::int)::text as day, ((now() at time zone 'UTC')::date - $1::int + 1)::text as next`,
    [days],
  );
  const { day, next } = rows[0];
  for (const parent of PARENTS)
    await db.query(
      `create table if not exists posthaste.${parent}_${day.replaceAll('-', '')} partition of posthaste.${parent} for values from ('${day} 00:00+00') to ('${next} 00:00+00')`,
    );
  await db.query(
    `create or replace function posthaste.now_ms() returns timestamptz language sql volatile parallel safe as
     $$ select date_trunc('milliseconds', clock_timestamp() - interval '${days} days') $$`,
  );
  return day;
}
const today = () =>
  engine.db.query(
    `create or replace function posthaste.now_ms() returns timestamptz language sql volatile parallel safe as
     $$ select date_trunc('milliseconds', clock_timestamp()) $$`,
  );
const ended = (tenant: string, count: number) =>
  until(
    async () =>
      (await engine.db.query('select * from posthaste.deliveries where tenant = $1 order by id', [tenant]))
        .rows,
    (rows) => rows.length === count,
  );
/** The engine uses the tables all the while, so that a day may not go at the first call. */
const retireAll = () =>
  until(
    async () => {
      await retire(engine.db, log);
      return oldestDay(engine.db);
    },
    (day) => day === null,
  );

beforeEach(async () => {
  await migrate(engine.config.databaseDirectUrl, { retentionDays: 10 });
});

describe('a dead letter whose day is over', () => {
  it('is still listed, counted and exported with its body, and is resent with the same bytes', async () => {
    await seedTenant(engine.db, 'old');
    const receiver = await startReceiver({
      respond: ({ path }) => ({ status: path === '/bad' ? 500 : 200 }),
    });
    const policy = { max_attempts: 1, deadline: '30d' };
    const bad = await seedEndpoint(engine.db, 'old', { url: `${receiver.url}/bad`, policy });
    const good = await seedEndpoint(engine.db, 'old', { url: `${receiver.url}/good`, policy });
    await engine.db.query(
      `update posthaste.endpoints set event_types = case id when $1 then array['json', 'raw'] else array['json', 'fine'] end where tenant = 'old'`,
      [bad.id],
    );
    const day = await daysAgo(20);
    await engine.db.query(
      `select posthaste.enqueue('old', 'json', '{"big": 12345678901234567890,  "a":1, "a":2}', version => 9007199254740993)`,
    );
    await engine.db.query(
      `select posthaste.enqueue_raw('old', 'raw', '\\xff00fe'::bytea, 'application/x-bytes', id => 'own-id')`,
    );
    await enqueueMany(engine.db, 'old', 'fine', 3);
    const rows = await ended('old', 6);
    await today();
    expect(rows.map((row) => row.created_at.toISOString().slice(0, 10))).toEqual(Array(6).fill(day));
    const requests = new Map(receiver.requests.filter((r) => r.path === '/bad').map((r) => [r.webhookId, r]));

    await retireAll();
    for (const parent of PARENTS)
      expect(
        (await one('select to_regclass($1) as found', `posthaste.${parent}_${day.replaceAll('-', '')}`))
          .found,
      ).toBeNull();
    expect((await one(`select count(*) as c from posthaste.all_events where tenant = 'old'`)).c).toBe(2);

    const path = '/v1/tenants/old/dead-letters';
    const { json } = await call('GET', `${path}?include=body`);
    expect(json.data).toHaveLength(2);
    for (const letter of json.data) {
      const sent = requests.get(letter.event)!;
      expect(letter).toMatchObject({ endpoint: bad.id, reason: 'max_attempts', last_status: 500 });
      expect(Buffer.from(letter.body, letter.body_encoding === 'base64' ? 'base64' : 'utf8')).toEqual(
        sent.body,
      );
      expect(letter.content_type).toBe(sent.headers['content-type']);
    }
    const lines = (await call('GET', `${path}?include=body`, 'application/x-ndjson')).text
      .trimEnd()
      .split('\n');
    expect(lines.map((line: string) => JSON.parse(line))).toEqual(json.data);
    expect((await call('GET', `${path}/count?reason=max_attempts`)).json).toMatchObject({
      total: 2,
      groups: [{ endpoint: bad.id, reason: 'max_attempts', count: 2 }],
    });
    // Shown like any other delivery and event; those that were delivered are gone.
    for (const { delivery, event } of json.data) {
      expect((await call('GET', `/v1/tenants/old/deliveries/${delivery}`)).json).toMatchObject({
        state: 'dead',
      });
      expect((await call('GET', `/v1/tenants/old/events/${event}`)).json).toMatchObject({ id: event });
    }
    const fine = rows.find((row) => row.endpoint === good.id && row.event_type === 'fine')!;
    expect((await call('POST', `/v1/tenants/old/deliveries/${fine.id}/resend`)).json.code).toBe(
      'delivery_not_found',
    );
    expect((await call('GET', `/v1/tenants/old/events/${fine.event}`)).json.code).toBe('event_not_found');

    receiver.respond(() => ({ status: 200 }));
    const before = receiver.requests.length;
    for (const { delivery } of json.data) {
      expect((await call('POST', `/v1/tenants/old/deliveries/${delivery}/resend`)).status).toBe(202);
      await retire(engine.db, log); // between the resend and its attempt nothing is lost
    }
    const again = (await receiver.waitFor(before + 2)).slice(before);
    for (const request of again) {
      expect(request.body).toEqual(requests.get(request.webhookId)!.body);
      expect(request.headers['content-type']).toBe(requests.get(request.webhookId)!.headers['content-type']);
    }
    await until(
      async () =>
        (
          await one(
            `select count(*) as c from posthaste.deliveries where tenant = 'old' and state = 'delivered'`,
          )
        ).c,
      (count) => count === 2,
    );
    expect((await call('GET', `${path}/count`)).json).toEqual({ total: 0, groups: [] });
    // As young as their end: they go when that is past its retention, and take events and keys along.
    await retire(engine.db, log);
    expect((await ended('old', 2)).map((row) => row.state)).toEqual(['delivered', 'delivered']);
    await engine.db.query(
      `update posthaste.deliveries set finished_at = now() - interval '11 days' where tenant = 'old'`,
    );
    await retire(engine.db, log);
    const left = async (table: string) =>
      (await one(`select count(*) as c from posthaste.${table} where tenant = 'old'`)).c;
    for (const table of ['deliveries', 'all_events', 'event_fanouts', 'event_keys'])
      expect([table, await left(table)]).toEqual([table, 0]);
    await receiver.close();
  });
});

describe('what is unfinished', () => {
  it('keeps its event and its attempts beyond the retention, and is delivered in the end', async () => {
    await seedTenant(engine.db, 'unfinished');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'unfinished', {
      url: receiver.url,
      policy: { base: '1h', cap: '1h', deadline: '30d' },
    });
    await daysAgo(15);
    await enqueueMany(engine.db, 'unfinished', 'a.b', 1);
    await receiver.waitFor(1);
    const { delivery } = await until(
      () => one(`select delivery, state from posthaste.work where tenant = 'unfinished'`),
      (row) => row?.state === 'retrying',
    );
    await engine.db.query(
      `update posthaste.attempts set started_at = started_at - interval '15 days' where tenant = 'unfinished'`,
    );
    await today();
    await retireAll();
    const path = `/v1/tenants/unfinished/deliveries/${delivery}`;
    const attempts = (await call('GET', `${path}/attempts`)).json.data;
    expect(attempts).toMatchObject([{ n: 1, request: { body: receiver.requests[0]!.body.toString() } }]);
    receiver.respond(() => ({ status: 200 }));
    await call('POST', `${path}/resend`);
    const [first, second] = await receiver.waitFor(2);
    expect(second!.body).toEqual(first!.body);
    await until(
      async () => (await call('GET', path)).json.state,
      (state) => state === 'delivered',
    );
    await receiver.close();
  });
});

describe('an event that no relay has taken yet', () => {
  it('outlives its day, however long the outage', async () => {
    const database = await createDatabase();
    await migrate(database.url, { retentionDays: 1 });
    const db = createPool(database.url, { max: 2 });
    await seedTenant(db, 'waiting');
    const day = await daysAgo(4, db);
    const [event] = await enqueueMany(db, 'waiting', 'a.b', 1);
    for (let hours = 0; hours < 2; hours++) await retire(db, log);
    expect(await oldestDay(db)).toBeNull();
    const { rows } = await db.query('select id, created_at from posthaste.all_events');
    expect(rows).toMatchObject([{ id: event }]);
    expect(rows[0].created_at.toISOString().slice(0, 10)).toBe(day);
    await db.end();
  });
});

describe('a delivery whose event is gone', () => {
  it('can’t be resent: it would send nothing', async () => {
    await seedTenant(engine.db, 'gone');
    const receiver = await startReceiver();
    await seedEndpoint(engine.db, 'gone', { url: receiver.url });
    await enqueueMany(engine.db, 'gone', 'a.b', 1);
    const [row] = await ended('gone', 1);
    await engine.db.query(`delete from posthaste.events where tenant = 'gone'`);
    const answer = await call('POST', `/v1/tenants/gone/deliveries/${row.id}/resend`);
    expect([answer.status, answer.json.code]).toEqual([410, 'event_expired']);
    expect((await call('GET', `/v1/tenants/gone/deliveries/${row.id}`)).json.state).toBe('delivered');
    await receiver.close();
  });
});

describe('the retention', () => {
  it('of 0 days keeps everything, and no day goes before its time', async () => {
    const day = await daysAgo(30);
    await today();
    await migrate(engine.config.databaseDirectUrl, { retentionDays: 0 });
    await retire(engine.db, log);
    expect(await oldestDay(engine.db)).toBeNull();
    expect(await dropDay(engine.db, day)).toBe(false);
    await migrate(engine.config.databaseDirectUrl, { retentionDays: 30 });
    expect(await oldestDay(engine.db)).toBeNull();
    await migrate(engine.config.databaseDirectUrl, { retentionDays: 29 });
    expect(await oldestDay(engine.db)).toBe(day);
    await retireAll();
  });

  it('lets nobody wait: while a transaction uses the tables the day stays, and writers go on', async () => {
    const day = await daysAgo(30);
    await today();
    await seedTenant(engine.db, 'busy');
    const reader = await engine.db.connect();
    await reader.query('begin');
    await reader.query('select count(*) from posthaste.events');
    const dropping = dropDay(engine.db, day);
    await enqueueMany(engine.db, 'busy', 'a.b', 5);
    expect(await dropping).toBe(false);
    await retire(engine.db, log); // also not an error for the chore
    expect(await oldestDay(engine.db)).toBe(day);
    await reader.query('rollback');
    reader.release();
    await retireAll();
  });
});
