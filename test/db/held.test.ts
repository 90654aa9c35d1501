import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { moveEndpoint } from '../../src/db/endpoint-states.ts';
import { healthDue } from '../../src/db/health.ts';
import { resend } from '../../src/db/operators.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { scanHold } from '../../src/db/scan.ts';
import { claimPump, finish, giveBack, newPump, park, reap, record } from '../../src/db/verbs.ts';
import { claim } from '../support/claim.ts';
import { attemptRecord } from '../support/interleave.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 6 });
  await seedTenant(db, 'permits');
});
afterAll(() => db.end());

describe('ending a crowd of held deliveries', () => {
  it('locks no endpoint: claims there and elsewhere go on meanwhile', async () => {
    const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    const other = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    const old = await seedWork(db, 'permits', id, 300);
    await park(db, old.slice(0, 200), null);
    await moveEndpoint(db, 'permits', id, 'disable', 'operator');
    await moveEndpoint(db, 'permits', id, 'enable');
    await db.query(`update posthaste.endpoint_state set mode = 'shared' where endpoint = $1`, [id]);
    const fresh = await seedWork(db, 'permits', id, 5);
    const elsewhere = await seedWork(db, 'permits', other.id, 5);
    const ending = await db.connect();
    const claiming = await db.connect();
    try {
      await ending.query('begin');
      expect(await finish(ending, old)).toHaveLength(300);
      await claiming.query(`begin; set local lock_timeout = '2s'`);
      const asks = [...fresh, ...elsewhere].map((delivery) => ({ delivery, generation: 1, n: 0 }));
      const answers = await claim(claiming, asks);
      expect(answers.map((a) => a.verdict)).toEqual(asks.map(() => 'granted'));
      await claiming.query('commit');
      await ending.query('commit');
    } finally {
      ending.release();
      claiming.release();
    }
    const left = await db.query(
      `select (select count(*)::int from posthaste.work where endpoint = $1) as work, in_flight from posthaste.endpoint_state where endpoint = $1`,
      [id],
    );
    expect(left.rows).toEqual([{ work: 5, in_flight: 5 }]);
  });

  it('leaves a row alone that is being claimed at that moment', async () => {
    const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    const [delivery] = await seedWork(db, 'permits', id, 1);
    await db.query(`update posthaste.work set deadline = now() + interval '1 second' where delivery = $1`, [
      delivery,
    ]);
    const claiming = await db.connect();
    try {
      await claiming.query('begin');
      const [answer] = await claim(claiming, [{ delivery: delivery!, generation: 1, n: 0 }]);
      expect(answer!.verdict).toBe('granted');
      await db.query('select pg_sleep(1)');
      expect(await finish(db, [delivery!])).toEqual([]);
      await claiming.query('commit');
    } finally {
      claiming.release();
    }
    expect(await finish(db, [delivery!])).toEqual([]);
    const row = await db.query('select state from posthaste.work where delivery = $1', [delivery]);
    expect(row.rows).toEqual([{ state: 'sending' }]);
  });
});

describe('what a pump or its endpoint leaves behind', () => {
  const held = async (count: number, change = 'cap = 100') => {
    const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    const deliveries = await seedWork(db, 'permits', id, count);
    await park(db, deliveries, null);
    await db.query(
      `update posthaste.endpoint_state set keep_pump_until = 'infinity', ${change} where endpoint = $1`,
      [id],
    );
    return { id, deliveries };
  };
  const rows = async (endpoint: string) =>
    (
      await db.query(
        `select state, scan_at <= now() as due, count(*)::int as c from posthaste.work where endpoint = $1 group by 1, 2`,
        [endpoint],
      )
    ).rows;
  const SHARDS = Array.from({ length: 16 }, (_, i) => i);

  it('a lost claim is reaped when its time is over, and the slot and the probe come back', async () => {
    const { id } = await held(1, `health = 'open', probe_at = now()`);
    expect((await claimPump(db, id, await newPump(db), 10, 15_000)).claims).toHaveLength(1);
    // Its worker is killed, and an hour goes by.
    await db.query(
      `update posthaste.work set claim_until = claim_until - interval '1 hour', scan_at = scan_at - interval '1 hour' where endpoint = $1`,
      [id],
    );
    expect(await reap(db, SHARDS, 15_000, 10)).toHaveLength(1);
    const state = await db.query('select in_flight from posthaste.endpoint_state where endpoint = $1', [id]);
    expect(state.rows).toEqual([{ in_flight: 0 }]);
    const told = await db.query(
      `select fact ->> 'lost' as lost from posthaste.health_inbox where endpoint = $1 order by id desc limit 1`,
      [id],
    );
    expect(told.rows).toEqual([{ lost: '1' }]);
  });

  it('rows of a disabled endpoint are not put off: the scanner ends them', async () => {
    const { id } = await held(5);
    await moveEndpoint(db, 'permits', id, 'disable', 'operator');
    await db.query('update posthaste.work set scan_at = now() where endpoint = $1', [id]);
    await scanHold(db, SHARDS, 1_000);
    expect(await rows(id)).toEqual([{ state: 'held', due: true, c: 5 }]);
    const late = await seedWork(db, 'permits', id, 2); // were about to be parked when it was disabled
    await park(db, late, null);
    expect(await rows(id)).toEqual(
      expect.arrayContaining([
        { state: 'held', due: true, c: 5 },
        { state: 'ready', due: true, c: 2 },
      ]),
    );
  });

  it('an order to send after the endpoint was enabled again outlives what disabling ended', async () => {
    const { id, deliveries } = await held(2);
    await moveEndpoint(db, 'permits', id, 'disable', 'operator');
    await moveEndpoint(db, 'permits', id, 'enable');
    await resend(db, 'permits', deliveries[0]!);
    const ended = await finish(db, deliveries);
    expect(ended.map((row) => row.delivery)).toEqual([deliveries[1]]);
    expect((await claimPump(db, id, await newPump(db), 10, 15_000)).claims).toMatchObject([
      { delivery: deliveries[0] },
    ]);
  });

  it('a claim given back after the mode ended is due at once', async () => {
    const { id } = await held(1);
    const answer = await claimPump(db, id, await newPump(db), 10, 15_000);
    await db.query(`update posthaste.endpoint_state set mode = 'shared' where endpoint = $1`, [id]);
    await giveBack(
      db,
      answer.claims!.map(({ delivery, token }) => ({ delivery, token, endpoint: id })),
    );
    expect(await rows(id)).toEqual([{ state: 'ready', due: true, c: 1 }]);
  });
});

it('a Retry-After of the receiver that an endpoint had before an edit pauses nothing', async () => {
  const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
  const [first, second] = await seedWork(db, 'permits', id, 2);
  const [a, b] = await claim(
    db,
    [first, second].map((delivery) => ({ delivery: delivery!, generation: 1, n: 0 })),
  );
  await db.query('update posthaste.endpoints set revision = revision + 1 where id = $1', [id]);
  const pause = { health: 'failure' as const, pause_until: Date.now() + 3_600_000 };
  const paused = async () =>
    (
      await db.query(
        'select pause_until > now() as paused from posthaste.endpoint_state where endpoint = $1',
        [id],
      )
    ).rows[0].paused;
  await record(db, [attemptRecord(a!, id, 'retrying', { ...pause, revision: 1 })]);
  expect(await paused()).toBe(false);
  await record(db, [attemptRecord(b!, id, 'retrying', { ...pause, revision: 2 })]);
  expect(await paused()).toBe(true);
});

it('replays take three quarters of the slots of an endpoint, also of one with a rate', async () => {
  const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 8 });
  await db.query('update posthaste.endpoint_state set rate_limit = 2 where endpoint = $1', [id]);
  const deliveries = await seedWork(db, 'permits', id, 10);
  await db.query(`update posthaste.work set lane = 'bulk' where endpoint = $1`, [id]);
  const asks = deliveries.map((delivery) => ({ delivery, generation: 1, n: 0 }));
  const granted = (await claim(db, asks)).filter((answer) => answer.verdict === 'granted');
  expect(granted).toHaveLength(2);
  await db.query('update posthaste.endpoint_state set rate_limit = null where endpoint = $1', [id]);
  const rest = asks.filter((ask) => !granted.some(({ delivery }) => delivery === ask.delivery));
  expect((await claim(db, rest)).filter((answer) => answer.verdict === 'granted')).toHaveLength(4);
});

it('health is told how much comes in for an endpoint in mode pump, of new deliveries alone', async () => {
  const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
  await seedWork(db, 'permits', id, 30);
  await db.query(
    `update posthaste.work set state = 'held', held_deadline = deadline, lane = case when n_th <= 5 then 'bulk' else lane end
     from (select w.delivery as d, row_number() over (order by w.delivery) as n_th from posthaste.work w where w.endpoint = $1) x
     where endpoint = $1 and delivery = x.d`,
    [id],
  );
  await db.query(
    `update posthaste.endpoint_state set mode = 'pump', health = 'open', probe_at = now() + interval '1 hour' where endpoint = $1`,
    [id],
  );
  await db.query(
    `insert into posthaste.health_inbox (endpoint, shard, fact) select endpoint, shard, '{"edit": "edit"}' from posthaste.endpoint_state where endpoint = $1`,
    [id],
  );
  const shards = Array.from({ length: 16 }, (_, i) => i);
  const due = (await healthDue(db, shards, 1_000)).find(({ endpoint }) => endpoint === id);
  expect(due?.arrival_rate).toBeCloseTo(2.5, 5); // 25 in ten seconds; replays do not count
  expect(due?.held).toBe(30);
});
