/**
 * Statements are planned once per connection, mostly while next to nothing waits. Once a relay has told the planner of a
 * burst (refresh_statistics), what a call reads is bounded by its own rows, however many wait beside them.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { fanOut, type Position } from '../../src/db/outbox.ts';
import { createPool, type Db, type Pool } from '../../src/db/pool.ts';
import { acquireLeases } from '../../src/db/shards.ts';
import { refreshStatistics } from '../../src/db/upkeep.ts';
import { claimPump, finish, giveBack, newPump, record } from '../../src/db/verbs.ts';
import { newId } from '../../src/ids.ts';
import { claim } from '../support/claim.ts';
import { attemptRecord } from '../support/interleave.ts';
import { looksOf } from '../support/looks.ts';
import { createDatabase } from '../support/postgres.ts';
import { enqueueMany, seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

const BURST = 5_000;
const BATCH = 100;

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 1 }); // one connection keeps its plans
});
afterAll(() => db.end());

it('the verbs read no more of a burst than what they are asked about, with plans from before it', async () => {
  await seedTenant(db, 'a');
  const { id } = await seedEndpoint(db, 'a', { url: 'https://example.com/', cap: 1_000 });
  const ask = (delivery: string) => ({ delivery, generation: 1, n: 0 });
  // More calls than PostgreSQL plans anew for, each with a row or two in the table, which autovacuum has seen like that.
  await seedWork(db, 'a', id, 2);
  await db.query('vacuum analyze posthaste.work');
  for (let i = 0; i < 12; i++) {
    const [one, other] = await seedWork(db, 'a', id, 2);
    const [answer] = await claim(db, [ask(one!)]);
    await giveBack(db, [{ delivery: one!, endpoint: id, token: answer!.token! }]);
    const answers = await claim(db, [ask(one!), ask(other!)]);
    await record(
      db,
      answers.map((granted) => attemptRecord(granted, id, 'delivered')),
    );
    await finish(db, [one!, other!]);
  }

  const burst = await seedWork(db, 'a', id, BURST);
  expect(await refreshStatistics(db, BURST, 0)).toBe(true);
  expect(await refreshStatistics(db, BURST, 0)).toBe(false); // it knows
  const some = burst.slice(0, BATCH);
  let answers: Awaited<ReturnType<typeof claim>> = [];
  const BOUND = 12 * BATCH; // a few looks at each row; reading the table would be 5,000 and more
  expect(
    await looksOf(db, async (client) => {
      answers = await claim(client, some.map(ask));
    }),
  ).toBeLessThan(BOUND);
  expect(answers.map(({ verdict }) => verdict)).toEqual(new Array(BATCH).fill('granted'));
  expect(
    await looksOf(db, (client) =>
      giveBack(
        client,
        answers.slice(0, 10).map(({ delivery, token }) => ({ delivery, endpoint: id, token: token! })),
      ),
    ),
  ).toBeLessThan(BOUND);
  expect(
    await looksOf(db, (client) =>
      record(
        client,
        answers.slice(10).map((granted, i) => attemptRecord(granted, id, i % 2 ? 'delivered' : 'retrying')),
      ),
    ),
  ).toBeLessThan(BOUND);
  expect(await looksOf(db, (client) => finish(client, some))).toBeLessThan(BOUND);
});

it('a pump with a backlog reads about what it sends', async () => {
  await seedTenant(db, 'p');
  const { id } = await seedEndpoint(db, 'p', { url: 'https://example.com/', cap: 1_000 });
  await db.query(
    `update posthaste.endpoint_state set mode = 'pump', keep_pump_until = 'infinity' where endpoint = $1`,
    [id],
  );
  await db.query('delete from posthaste.work');
  await seedWork(db, 'p', id, 2);
  await db.query('vacuum analyze posthaste.work');
  const pump = await newPump(db);
  for (let i = 0; i < 12; i++) await claimPump(db, id, pump, 10, 15_000);
  await seedWork(db, 'p', id, BURST);
  await db.query(
    `update posthaste.work set state = 'held', held_deadline = deadline, due_at = now() - interval '1 minute' where endpoint = $1`,
    [id],
  );
  expect(await refreshStatistics(db, BURST, 0)).toBe(true);
  let claims: unknown[] | null = null;
  const looks = await looksOf(db, async (client) => {
    claims = (await claimPump(client, id, pump, BATCH, 15_000)).claims;
  });
  expect(claims).toHaveLength(BATCH);
  expect(looks).toBeLessThan(12 * BATCH);
});

it('a fan-out reads what it takes of a burst, with plans from before it', async () => {
  await seedTenant(db, 'f');
  await seedEndpoint(db, 'f', { url: 'https://example.com/' });
  const leases = await acquireLeases(db, 'plans', 600_000, 16);
  let after: Position = { xid: '0', seq: 0 };
  const fan = async (client: Db, limit: number) => {
    const out = await fanOut(client, {
      leases,
      tenants: [{ tenant: 'f', after, limit, room: 1_000 }],
      dispatch: newId('dsp'),
      singles: 0,
      aliveMs: 30_000,
    });
    for (const { xid, seq } of out.tenants) after = { xid, seq };
    return out.tenants[0]?.events ?? 0;
  };
  await db.query('vacuum analyze posthaste.outbox');
  for (let i = 0; i < 12; i++) {
    await enqueueMany(db, 'f', 'a.b', 1, i);
    expect(await fan(db, 10)).toBe(1);
  }
  await enqueueMany(db, 'f', 'a.b', BURST, 100);
  expect(await refreshStatistics(db, 0, BURST)).toBe(true);
  let taken = 0;
  const looks = await looksOf(
    db,
    async (client) => {
      taken = await fan(client, BATCH);
    },
    'outbox',
  );
  expect(taken).toBe(BATCH);
  expect(looks).toBeLessThan(12 * BATCH);
});
