/** The pages of a replay, without Temporal: what they match, that each match is moved once, and what holds them back. */
import { beforeAll, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import {
  cancelReplay,
  getReplay,
  insertReplay,
  type NewReplay,
  type ReplayFilter,
  replayCount,
  replayOfKey,
  replayPage,
  scanReplays,
} from '../../src/db/replays.ts';
import { record } from '../../src/db/verbs.ts';
import { newId } from '../../src/ids.ts';
import { claim } from '../support/claim.ts';
import { cleanUpLater } from '../support/clean-up.ts';
import { attemptRecord } from '../support/interleave.ts';
import { createDatabase } from '../support/postgres.ts';
import { enqueueMany, seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

let db: Pool;
beforeAll(async () => {
  const database = await createDatabase();
  db = createPool(database.url, { max: 8 });
  cleanUpLater(() => db.end());
});

const ANY: ReplayFilter = {
  delivery: null,
  endpoint: null,
  event: null,
  type: null,
  states: null,
  status: null,
  class: null,
  since: null,
  until: null,
};
const FAILED = { ...ANY, states: ['dead', 'cancelled'] };

async function replay(tenant: string, change: Partial<NewReplay> = {}): Promise<string> {
  const id = await insertReplay(db, {
    id: newId('rpl'),
    tenant,
    action: 'resend',
    source: 'deliveries',
    filter: FAILED,
    missed: false,
    rate: 1000,
    key: null,
    aliveMs: 0,
    ...change,
  });
  return id!;
}

/** Pages until it ends or waits for room; the pace is taken away, so that no time passes. */
async function run(id: string, pages = 1_000): Promise<{ state: string; pages: number }> {
  for (let made = 0; made < pages; made++) {
    await db.query('update posthaste.replays set next_at = created_at where id = $1', [id]);
    const page = await replayPage(db, id, 60_000);
    const row = await getReplay(db, null, id);
    if (page.state !== 'running' || row!.waiting) return { state: page.state, pages: made };
  }
  return { state: 'running', pages };
}

/** Ends deliveries as a worker would. */
async function end(deliveries: string[], outcome: 'dead' | 'delivered', status = 500): Promise<void> {
  const rows = (
    await db.query('select delivery, generation, n, endpoint from posthaste.work where delivery = any ($1)', [
      deliveries,
    ])
  ).rows;
  const endpoints = new Map(rows.map((row) => [row.delivery, row.endpoint]));
  const granted = await claim(db, rows);
  expect(granted.filter(({ verdict }) => verdict !== 'granted')).toEqual([]);
  await record(
    db,
    granted.map((answer) => attemptRecord(answer, endpoints.get(answer.delivery), outcome, { status })),
  );
}

let named = 0;
/** A tenant with one endpoint and deliveries that are all dead. */
async function dead(count: number, cap = 1000) {
  const tenant = `replays${named++}`;
  await seedTenant(db, tenant);
  const { id: endpoint } = await seedEndpoint(db, tenant, { url: 'https://a.com/', cap });
  const deliveries = await seedWork(db, tenant, endpoint, count);
  await end(deliveries, 'dead');
  return { tenant, endpoint, deliveries };
}

const counts = async (tenant: string) =>
  (
    await db.query(
      `select (select count(*)::int from posthaste.work where tenant = $1) as work,
         (select count(*)::int from posthaste.deliveries where tenant = $1) as ended,
         (select count(*)::int from posthaste.dead_letters where tenant = $1) as dead_letters,
         (select coalesce(max(generation), 0) from posthaste.work where tenant = $1) as generation`,
      [tenant],
    )
  ).rows[0];

describe('a replay of what failed', () => {
  it('moves each of 450 once, with n going on and a deadline of its own, and counts exactly', async () => {
    const { tenant, endpoint } = await dead(450);
    const id = await replay(tenant, { filter: { ...FAILED, endpoint } });
    await replayCount(db, id);
    expect(await run(id)).toEqual({ state: 'done', pages: 2 });
    expect(await getReplay(db, tenant, id)).toMatchObject({
      total: 450,
      moved: 450,
      skipped: 0,
      missed_made: 0,
    });
    expect(await counts(tenant)).toEqual({ work: 450, ended: 0, dead_letters: 0, generation: 2 });
    const { rows } = await db.query(
      `select distinct n, step, burned, kind, lane, state, deadline > now() + interval '71 hours' as anew from posthaste.work where tenant = $1`,
      [tenant],
    );
    expect(rows).toEqual([
      { n: 1, step: 0, burned: 0, kind: 'replay', lane: 'bulk', state: 'ready', anew: true },
    ]);
  });

  it('paged by four at once moves nothing twice, and what dies again is left to the next replay', async () => {
    const { tenant } = await dead(450);
    const id = await replay(tenant, { source: 'dead_letters', filter: ANY });
    let again = 0;
    const work = async () => {
      for (
        let page = await replayPage(db, id, 60_000);
        page.state === 'running';
        page = await replayPage(db, id, 60_000)
      ) {
        const { rows } = await db.query(
          `select delivery from posthaste.work where tenant = $1 and state = 'ready' order by random() limit 20 for update skip locked`,
          [tenant],
        );
        const granted = (
          await claim(
            db,
            rows.map(({ delivery }) => ({ delivery, generation: 2, n: 1 })),
          )
        ).filter(({ verdict }) => verdict === 'granted');
        const endpoint = (await db.query('select id from posthaste.endpoints where tenant = $1', [tenant]))
          .rows[0].id;
        await record(
          db,
          granted.map((answer) => attemptRecord(answer, endpoint, 'dead')),
        );
        again += granted.length;
      }
    };
    await Promise.all([work(), work(), work(), work()]);
    expect(await getReplay(db, tenant, id)).toMatchObject({ state: 'done', moved: 450, skipped: 0 });
    expect(await counts(tenant)).toMatchObject({ work: 450 - again, dead_letters: again });
    const { rows } = await db.query(
      `select max(generation) as generation, max(n) as n from (select generation, n from posthaste.work where tenant = $1 union all select generation, n from posthaste.deliveries where tenant = $1) x`,
      [tenant],
    );
    expect(rows[0]).toMatchObject({ generation: 2 });
  });

  it('takes the range, the endpoint and the states that were asked for, and nothing made after it', async () => {
    const { tenant, endpoint, deliveries } = await dead(6);
    const other = await seedEndpoint(db, tenant, { url: 'https://b.com/', cap: 100 });
    const others = await seedWork(db, tenant, other.id, 4);
    await end(others.slice(0, 2), 'delivered', 200);
    await end(others.slice(2, 3), 'dead', 404);
    const none = await replay(tenant, { filter: { ...FAILED, until: new Date(Date.now() - 3_600_000) } });
    expect(await run(none)).toMatchObject({ state: 'done' });
    expect(await getReplay(db, tenant, none)).toMatchObject({ moved: 0 });
    const status = await replay(tenant, { filter: { ...FAILED, status: 404 } });
    await run(status);
    expect(await getReplay(db, tenant, status)).toMatchObject({ moved: 1 });
    const delivered = await replay(tenant, { filter: { ...ANY, endpoint: other.id, states: ['delivered'] } });
    await run(delivered);
    expect(await getReplay(db, tenant, delivered)).toMatchObject({ moved: 2 });
    const recent = await replay(tenant, {
      filter: { ...FAILED, endpoint, since: new Date(Date.now() - 3_600_000) },
    });
    await db.query(
      `update posthaste.replays set created_at = created_at - interval '30 minutes' where id = $1`,
      [recent],
    );
    await run(recent);
    expect(await getReplay(db, tenant, recent)).toMatchObject({ moved: 0 });
    const one = await replay(tenant, { source: 'delivery', filter: { ...ANY, delivery: deliveries[0]! } });
    await run(one);
    expect(await getReplay(db, tenant, one)).toMatchObject({ state: 'done', moved: 1 });
  });

  it('goes through many that do not match in bounded pages', async () => {
    const { tenant } = await dead(3);
    await db.query(
      `insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at, kind, state, n, burned, generation)
       select 'dlv_' || posthaste.id_time(t) || lpad(to_hex(g), 16, '0'), $1, 'ep_x', 'evt_x', t, 'x', 1, t, t, 'live', 'delivered', 1, 1, 1
       from generate_series(1, 12000) g, date_trunc('milliseconds', now() - interval '1 hour') t`,
      [tenant],
    );
    const id = await replay(tenant);
    expect(await run(id)).toEqual({ state: 'done', pages: 2 });
    expect(await getReplay(db, tenant, id)).toMatchObject({ moved: 3 });
  });
});

describe('a replay waits', () => {
  it('while a thousand of its endpoint are unfinished, and for its share while other tenants replay', async () => {
    const a = await dead(900);
    const b = await dead(900);
    const [ra, rb] = [await replay(a.tenant), await replay(b.tenant)];
    expect(await run(ra)).toMatchObject({ state: 'running' });
    expect(await getReplay(db, null, ra)).toMatchObject({ waiting: true, moved: 500 });
    expect(await run(rb)).toMatchObject({ state: 'running' });
    expect(await getReplay(db, null, rb)).toMatchObject({ waiting: true, moved: 500 });
    await cancelReplay(db, b.tenant, rb);
    expect(await run(ra)).toMatchObject({ state: 'done' });
    await db.query(`update posthaste.work set lane = 'bulk', state = 'retrying' where tenant = $1`, [
      a.tenant,
    ]);
    await end(await seedWork(db, a.tenant, a.endpoint, 300), 'dead');
    const whole = await replay(a.tenant, { filter: { ...FAILED, endpoint: a.endpoint } });
    expect(await run(whole)).toMatchObject({ state: 'running' });
    expect(await getReplay(db, null, whole)).toMatchObject({ waiting: true, moved: 100 });
    await cancelReplay(db, null, whole);
  });

  it('for its pace: 50 a second are one page a second', async () => {
    const { tenant } = await dead(120);
    const id = await replay(tenant, { rate: 50 });
    const first = await replayPage(db, id, 60_000);
    const second = await replayPage(db, id, 60_000);
    expect(first.wait_ms).toBeGreaterThan(0);
    expect(second.wait_ms).toBeGreaterThan(0);
    expect(await getReplay(db, null, id)).toMatchObject({ moved: 50, state: 'running' });
    await cancelReplay(db, null, id);
  });
});

describe('a replay ends', () => {
  it('at cancel, with what it has moved staying moved', async () => {
    const { tenant } = await dead(450);
    const id = await replay(tenant);
    await replayPage(db, id, 60_000);
    expect(await cancelReplay(db, tenant, id)).toMatchObject({ state: 'cancelled', moved: 200 });
    expect(await replayPage(db, id, 60_000)).toMatchObject({ state: 'cancelled' });
    expect(await counts(tenant)).toMatchObject({ work: 200, ended: 250 });
    expect(await cancelReplay(db, tenant, id)).toMatchObject({ state: 'cancelled' });
    expect(await cancelReplay(db, 'someone else', id)).toBeNull();
  });

  it('when its endpoint is disabled; over many endpoints, the disabled ones are passed over', async () => {
    const { tenant, endpoint } = await dead(5);
    await db.query(`update posthaste.endpoints set state = 'disabled' where id = $1`, [endpoint]);
    const one = await replay(tenant, { filter: { ...FAILED, endpoint } });
    expect(await run(one)).toMatchObject({ state: 'stopped' });
    expect(await getReplay(db, null, one)).toMatchObject({ reason: 'endpoint_disabled', moved: 0 });
    const all = await replay(tenant);
    expect(await run(all)).toMatchObject({ state: 'done' });
    expect(await getReplay(db, null, all)).toMatchObject({ moved: 0, skipped: 5 });
  });

  it('and those nobody pages are found by the scanner', async () => {
    const { tenant } = await dead(1);
    const id = await replay(tenant);
    const shards = Array.from({ length: 16 }, (_, i) => i);
    expect(await scanReplays(db, shards, 10, 60_000)).toContainEqual({ id, tenant });
    expect(await scanReplays(db, shards, 10, 60_000)).toEqual([]);
    await db.query('update posthaste.replays set alive_until = now() where id = $1', [id]);
    expect(await scanReplays(db, shards, 10, 60_000)).toEqual([{ id, tenant }]);
    await cancelReplay(db, null, id);
  });

  it('the same key asks for the same replay', async () => {
    const { tenant } = await dead(1);
    const id = await replay(tenant, { key: 'replay/x/1' });
    expect(await replay(tenant, { key: 'replay/x/1' })).toBeNull();
    expect(await replayOfKey(db, 'replay/x/1')).toBe(id);
    await cancelReplay(db, null, id);
  });
});

describe('events that an endpoint missed', () => {
  it('are delivered to it with the sequence of then, once, and only those it subscribes to', async () => {
    const tenant = 'missed';
    await seedTenant(db, tenant);
    const events = await enqueueMany(db, tenant, 'a.b', 5);
    await enqueueMany(db, tenant, 'other', 3);
    await db.query(
      `insert into posthaste.event_fanouts (tenant, event_at, event, sequence, deliveries, fanned_out_at)
       select v.tenant, v.created_at, v.id, row_number() over (order by v.created_at, v.id), 0, now() from posthaste.events v where v.tenant = $1`,
      [tenant],
    );
    const { id: endpoint } = await seedEndpoint(db, tenant, { url: 'https://a.com/', types: ['a.b'] });
    const filter = { ...FAILED, endpoint, since: new Date(Date.now() - 600_000) };
    const [first, second] = [
      await replay(tenant, { filter, missed: true }),
      await replay(tenant, { filter, missed: true }),
    ];
    await replayCount(db, first);
    await Promise.all([run(first), run(second)]);
    const [a, b] = [await getReplay(db, null, first), await getReplay(db, null, second)];
    expect([a!.state, b!.state, a!.total, a!.missed_made + b!.missed_made]).toEqual(['done', 'done', 5, 5]);
    const { rows } = await db.query(
      `select w.event, w.sequence = f.sequence as same, w.kind, w.lane from posthaste.work w
       join posthaste.event_fanouts f on f.tenant = w.tenant and f.event = w.event where w.tenant = $1`,
      [tenant],
    );
    expect(rows.map((row) => row.event).toSorted()).toEqual(events.toSorted());
    for (const row of rows) expect(row).toMatchObject({ same: true, kind: 'replay', lane: 'bulk' });
  });
});

describe('a claim of replayed deliveries', () => {
  it('leaves a quarter of the slots to live traffic', async () => {
    const { tenant, endpoint } = await dead(12, 100);
    await db.query('update posthaste.endpoint_state set cap = 8 where endpoint = $1', [endpoint]);
    const id = await replay(tenant);
    await run(id);
    const granted = async (lane: string): Promise<number> => {
      const { rows } = await db.query(
        'select delivery, generation, n from posthaste.work where tenant = $1 and lane = $2',
        [tenant, lane],
      );
      return (await claim(db, rows)).filter(({ verdict }) => verdict === 'granted').length;
    };
    expect(await granted('bulk')).toBe(6);
    await seedWork(db, tenant, endpoint, 3);
    expect(await granted('first')).toBe(2);
  });
});

describe('a bulk cancel', () => {
  it('ends what waits, asks what is being sent, and leaves the ended alone', async () => {
    const tenant = 'bulkcancel';
    await seedTenant(db, tenant);
    const { id: endpoint } = await seedEndpoint(db, tenant, { url: 'https://a.com/', cap: 1000 });
    const deliveries = await seedWork(db, tenant, endpoint, 450);
    await end(deliveries.slice(0, 10), 'delivered', 200);
    await claim(db, [{ delivery: deliveries[10]!, generation: 1, n: 0 }]);
    const id = await replay(tenant, {
      action: 'cancel',
      filter: { ...ANY, states: ['ready', 'sending', 'retrying', 'held'] },
    });
    await run(id);
    expect(await getReplay(db, null, id)).toMatchObject({ state: 'done', moved: 440 });
    const { rows } = await db.query(
      `select state, reason, count(*)::int as c from posthaste.deliveries where tenant = $1 group by 1, 2 order by 1`,
      [tenant],
    );
    expect(rows).toEqual([
      { state: 'cancelled', reason: 'requested', c: 439 },
      { state: 'delivered', reason: null, c: 10 },
    ]);
  });
});
