/** Days without a partition, and many processes that migrate at once. */
import pg from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { ensurePartitions } from '../../src/db/partitions.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { prepareEngine, until } from '../support/engine.ts';
import { createDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';
import { ended } from './support.ts';

const PARENTS = ['events', 'event_fanouts', 'deliveries', 'attempts'];
let db: Pool;
let url: string;

async function partitionsFrom(day: string): Promise<string[]> {
  const rows = await db.query(
    `select relname from pg_class where relnamespace = 'posthaste'::regnamespace and relkind = 'r'
       and relname ~ $1 and right(relname, 8) ~ '^[0-9]{8}$' and right(relname, 8) >= to_char((now() at time zone 'UTC')::date + $2::int, 'YYYYMMDD')
     order by 1`,
    [`^(${PARENTS.join('|')})_`, day === 'today' ? 0 : 1],
  );
  return rows.rows.map((row) => row.relname);
}

async function dropPartitionsFrom(day: 'today' | 'tomorrow'): Promise<void> {
  for (const name of await partitionsFrom(day)) await db.query(`drop table posthaste.${name}`);
}

/** Moves the clock of everything that is enqueued by a day. */
const setClock = (offset: string) =>
  db.query(
    `create or replace function posthaste.now_ms() returns timestamptz language sql volatile parallel safe as
     $$ select date_trunc('milliseconds', clock_timestamp() + interval '${offset}') $$`,
  );

const rowsIn = async (table: string): Promise<number> =>
  (await db.query(`select count(*)::int as c from posthaste.${table}`)).rows[0].c;

beforeEach(async () => {
  url = (await createDatabase()).url;
  db = createPool(url, { max: 12 });
  await seedTenant(db, 'midnight');
  const pool = db;
  return () => pool.end();
});

describe('a day that nobody made a partition for', () => {
  it('takes events at midnight all the same, and making partitions afterwards neither fails nor loses them', async () => {
    await dropPartitionsFrom('tomorrow');
    await setClock('1 day');
    await enqueueMany(db, 'midnight', 'a.b', 5);
    expect(await rowsIn('events_default')).toBe(5);
    await setClock('0');
    await enqueueMany(db, 'midnight', 'a.b', 3);
    expect(await rowsIn('events_default')).toBe(5);
    // Tomorrow stays in the default partition for events; every other day and table gets its own.
    expect(await ensurePartitions(db)).toBe(4 * 14 - 1);
    expect(await rowsIn('events')).toBe(8);
    await setClock('1 day');
    await enqueueMany(db, 'midnight', 'a.b', 1);
    await setClock('2 days');
    await enqueueMany(db, 'midnight', 'a.b', 1);
    expect(await rowsIn('events_default')).toBe(6);
    expect(await rowsIn('events')).toBe(10);
    expect(await ensurePartitions(db)).toBe(0);
  });

  it('is delivered like any other: events, order, attempts and result without one partition of their own', async () => {
    const database = await createDatabase();
    const engine = await prepareEngine({ database });
    db = engine.db;
    await dropPartitionsFrom('today');
    await seedTenant(db, 'bare');
    const receiver = await startReceiver({ respond: (_request, n) => ({ status: n === 0 ? 500 : 200 }) });
    await seedEndpoint(db, 'bare', { url: receiver.url, policy: { schedule: ['10ms'] } });
    // The relay makes partitions as it starts; this lock keeps it from it, as a busy producer would.
    const busy = new pg.Client({ connectionString: database.url });
    await busy.connect();
    await busy.query('begin');
    await busy.query('select pg_advisory_xact_lock(7407301)');
    await engine.start();
    await enqueueMany(db, 'bare', 'a.b', 20);
    await ended(db, 20, 15_000);
    for (const parent of PARENTS) expect(await rowsIn(`${parent}_default`)).toBeGreaterThanOrEqual(20);
    await busy.query('rollback');
    await busy.end();
    expect(receiver.requests).toHaveLength(21);
    await receiver.close();
  });
});

describe('making partitions while the default partition is in use', () => {
  it('holds nobody up for long and does not fail: what it could not make comes with the next call', async () => {
    await dropPartitionsFrom('today');
    const producer = new pg.Client({ connectionString: url });
    await producer.connect();
    await producer.query('begin');
    await producer.query(`select posthaste.enqueue('midnight', 'a.b', '{}')`); // unseen until its commit
    const made = migrate(url);
    await until(
      async () =>
        (
          await db.query(
            `select count(*)::int as c from pg_stat_activity where datname = current_database() and application_name = 'posthaste migrate' and wait_event_type = 'Lock'`,
          )
        ).rows[0].c,
      (c) => c > 0,
    );
    // Producers queue behind its lock, until it gives up: the transaction above stays open all the while.
    await Promise.all(Array.from({ length: 20 }, () => enqueueMany(db, 'midnight', 'a.b', 2)));
    expect((await made).partitions).toBe(3 * 15);
    await producer.query('commit');
    await producer.end();
    // Today has events in the default partition now, and stays there.
    expect(await ensurePartitions(db)).toBe(14);
    expect(await partitionsFrom('tomorrow')).toHaveLength(4 * 14);
    await enqueueMany(db, 'midnight', 'a.b', 1);
    expect(await rowsIn('events_default')).toBe(42);
  });

  it('passes over a day whose first event is committed while it waits for the lock', async () => {
    await dropPartitionsFrom('today');
    const producer = new pg.Client({ connectionString: url });
    await producer.connect();
    await producer.query('begin');
    await producer.query(`select posthaste.enqueue('midnight', 'a.b', '{}')`);
    const patient = new pg.Client({ connectionString: url });
    await patient.connect();
    await patient.query('alter function posthaste.ensure_partitions set lock_timeout = 0');
    const made = patient.query('select posthaste.ensure_partitions() as made');
    await until(
      async () =>
        (
          await db.query(
            `select count(*)::int as c from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%ensure_partitions() as made%'`,
          )
        ).rows[0].c,
      (c) => c > 0,
    );
    await producer.query('commit');
    await producer.end();
    expect((await made).rows[0].made).toBe(4 * 15 - 1);
    await patient.end();
  });
});

describe('20 processes that migrate an empty database at once', () => {
  it('all succeed, and each migration is applied once', async () => {
    const empty = await createDatabase({ empty: true });
    const results = await Promise.all(Array.from({ length: 20 }, () => migrate(empty.url)));
    const applied = results.flatMap((result) => result.applied);
    expect(applied.length).toBeGreaterThan(0);
    expect(new Set(applied).size).toBe(applied.length);
    expect(results.filter((result) => result.partitions > 0)).toHaveLength(1);
  });
});
