/** Operators' actions at the same moment, from several sessions: each happens once. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { resend, resendEvent } from '../../src/db/operators.ts';
import { fanOut } from '../../src/db/outbox.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { acquireLeases } from '../../src/db/shards.ts';
import { newId } from '../../src/ids.ts';
import { createDatabase } from '../support/postgres.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let db: Pool;
let leases: { shard: number; epoch: number }[];
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 12 });
  leases = await acquireLeases(db, 'test', 3_600_000, 16);
});
afterAll(() => db.end());

const take = (tenant: string, limit: number, room: number) =>
  fanOut(db, {
    leases,
    tenants: [{ tenant, after: { xid: '0', seq: 0 }, limit, room }],
    dispatch: newId('dsp'),
    singles: 0,
    aliveMs: 1_000,
  });

it('an event resent several times at once gets one delivery per endpoint', async () => {
  await seedTenant(db, 'twice');
  const [event] = await enqueueMany(db, 'twice', 'a.b', 1);
  await take('twice', 1, 1);
  for (let e = 0; e < 3; e++) await seedEndpoint(db, 'twice', { url: 'https://example.com/' });
  const at = (await db.query(`select event_at from posthaste.event_fanouts where tenant = 'twice'`)).rows[0]
    .event_at;
  await Promise.all(Array.from({ length: 6 }, () => resendEvent(db, 'twice', event!, at)));
  const rows = await db.query(
    `select endpoint, count(*) as c from posthaste.work where tenant = 'twice' group by 1`,
  );
  expect(rows.rows.map((row) => row.c)).toEqual([1, 1, 1]);
});

it('a delivery resent several times at once is replayed once', async () => {
  await seedTenant(db, 'once');
  await seedEndpoint(db, 'once', { url: 'https://example.com/' });
  await enqueueMany(db, 'once', 'a.b', 1);
  await take('once', 1, 1);
  const delivery = (await db.query(`select delivery from posthaste.work where tenant = 'once'`)).rows[0]
    .delivery;
  await db.query(`select posthaste.cancel('once', $1)`, [delivery]);
  const answers = await Promise.all(Array.from({ length: 6 }, () => resend(db, 'once', delivery)));
  expect(answers.map((answer) => answer?.generation)).toEqual([2, 2, 2, 2, 2, 2]);
});

it('a fan-out takes no more events than there is room for their deliveries, but always one', async () => {
  await seedTenant(db, 'wide');
  for (let e = 0; e < 40; e++) await seedEndpoint(db, 'wide', { url: 'https://example.com/' });
  await enqueueMany(db, 'wide', 'a.b', 20);
  const some = await take('wide', 20, 100);
  expect(some.tenants).toMatchObject([{ events: 2, lim: 2, deliveries: 80 }]);
  const one = await take('wide', 20, 5);
  expect(one.tenants).toMatchObject([{ events: 1, lim: 1, deliveries: 40 }]);
});

it('enqueue refuses what could not be sent: times, versions and media types that nobody can write down', async () => {
  await seedTenant(db, 'odd');
  const bad: [string, unknown[]][] = [
    [`select posthaste.enqueue('odd', 'a', '1', "timestamp" => $1)`, ['infinity']],
    [`select posthaste.enqueue('odd', 'a', '1', "timestamp" => $1)`, ['-infinity']],
    [`select posthaste.enqueue('odd', 'a', '1', "timestamp" => $1)`, ['0044-03-15 BC']],
    [`select posthaste.enqueue('odd', 'a', '1', "timestamp" => $1)`, ['29000-01-01']],
    [`select posthaste.enqueue('odd', 'a', '1', version => $1)`, [-5]],
    [`select posthaste.enqueue_raw('odd', 'a', 'x', $1)`, ['(((']],
    [`select posthaste.enqueue_raw('odd', 'a', 'x', $1)`, ['text/plain\r\nx: y']],
    [`select posthaste.enqueue_raw('odd', 'a', 'x', $1)`, ['']],
    [`select posthaste.enqueue('odd', $1, '1')`, ['no spaces']],
    [`select posthaste.enqueue('odd', 'a', $1)`, [null]],
  ];
  for (const [sql, values] of bad)
    await expect(db.query(sql, values)).rejects.toMatchObject({ code: 'PHTYP' });
  expect((await db.query(`select count(*) as c from posthaste.events where tenant = 'odd'`)).rows[0].c).toBe(
    0,
  );
  await db.query(`select posthaste.enqueue_raw('odd', 'a', 'x', 'text/plain; charset=utf-8')`);
});

it('the time in an id is the time it was made from', async () => {
  const rows = await db.query(
    `select count(*) as wrong from (select timestamptz '2026-01-01' + g * interval '1234.567 seconds' as at from generate_series(1, 2000) g) x,
       lateral (select date_trunc('milliseconds', x.at) as ms) y
     where posthaste.id_at('dlv_' || posthaste.id_time(y.ms) || posthaste.id_random()) <> y.ms`,
  );
  expect(rows.rows[0].wrong).toBe(0);
  await db.query(`select posthaste.id_at(''), posthaste.id_at('nonsense'), posthaste.id_at('evt_ß')`);
});
