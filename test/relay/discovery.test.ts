/** The three properties of discovery: nothing lost or repeated, nobody waited for, dead rows not walked. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fanOut } from '../../src/db/outbox.ts';
import { createPool, type Pool, withTransaction } from '../../src/db/pool.ts';
import { acquireLeases } from '../../src/db/shards.ts';
import { createDiscovery, type Discovery } from '../../src/relay/discovery.ts';
import { createDatabase, type TestDatabase } from '../support/postgres.ts';
import { enqueueMany, seedTenant } from '../support/seed.ts';

let database: TestDatabase;
let db: Pool;
let leases: { shard: number; epoch: number }[];

beforeAll(async () => {
  database = await createDatabase();
  db = createPool(database.url, { max: 24 });
  leases = await acquireLeases(db, 'test', 3_600_000, 16);
  await seedTenant(db, 'a');
  await seedTenant(db, 'b');
});
afterAll(() => db.end());

const fresh = (): Discovery => {
  const discovery = createDiscovery(db);
  discovery.setShards(leases.map((lease) => lease.shard));
  return discovery;
};

/** Polls and takes whatever is there, as the relay does; answers how many events were taken. */
async function drain(discovery: Discovery): Promise<number> {
  await discovery.poll();
  let taken = 0;
  for (const waiting of [...discovery.waiting().values()]) {
    const limit = 1_000;
    const out = await fanOut(db, {
      leases,
      tenants: [{ tenant: waiting.tenant, after: waiting.after, limit, room: 100_000 }],
      dispatch: 'dsp_x',
      singles: 0,
      aliveMs: 1_000,
    });
    const got = out.tenants[0];
    discovery.took(waiting.tenant, got?.events ?? 0, got ? { xid: got.xid, seq: got.seq } : null, limit);
    taken += got?.events ?? 0;
  }
  return taken;
}

const sequences = async (tenant: string): Promise<number[]> =>
  (
    await db.query('select sequence from posthaste.event_fanouts where tenant = $1 order by sequence', [
      tenant,
    ])
  ).rows.map((row) => row.sequence);

describe('discovery', () => {
  it('takes every event of 16 producers once, though they commit late and out of order', async () => {
    const discovery = fresh();
    const committed: string[] = [];
    let producing = true;
    const producer = async (p: number): Promise<void> => {
      for (let i = 0; i < 25; i++) {
        await withTransaction(db, async (client) => {
          const count = 1 + ((p + i) % 3);
          for (let k = 0; k < count; k++) {
            const id = `p${p}-${i}-${k}`;
            await client.query(`select posthaste.enqueue($1, 'a.b', '{}', $2)`, [p % 2 ? 'a' : 'b', id]);
            committed.push(id);
            await client.query('select pg_sleep($1)', [((p * 7 + i * 3 + k) % 25) / 1_000]);
          }
        });
      }
    };
    const producers = Promise.all(Array.from({ length: 16 }, (_, p) => producer(p))).finally(() => {
      producing = false;
    });
    let taken = 0;
    while (producing) taken += await drain(discovery);
    await producers;
    taken += await drain(discovery);
    expect(taken).toBe(committed.length);
    expect((await db.query('select count(*) as c from posthaste.outbox')).rows[0].c).toBe(0);
    const ids = (await db.query(`select event from posthaste.event_fanouts where event like 'p%'`)).rows.map(
      (row) => row.event,
    );
    expect(new Set(ids)).toEqual(new Set(committed));
    expect(ids).toHaveLength(committed.length);
    for (const tenant of ['a', 'b']) {
      const order = await sequences(tenant);
      expect(order).toEqual(order.map((_, i) => i + 1));
    }
  });

  it('does not wait for a writing transaction elsewhere, and finds its rows at its commit', async () => {
    const discovery = fresh();
    await drain(discovery);
    const stranger = new pg.Client({ connectionString: database.adminUrl });
    await stranger.connect();
    await stranger.query('begin');
    await stranger.query('select pg_current_xact_id()'); // a writer in another database of the cluster
    const slow = await db.connect();
    await slow.query('set idle_in_transaction_session_timeout = 0');
    await slow.query('begin');
    await slow.query(`select posthaste.enqueue('a', 'slow', '{}')`);
    await enqueueMany(db, 'a', 'quick', 3);
    expect(await drain(discovery)).toBe(3);
    await enqueueMany(db, 'b', 'quick', 2);
    expect(await drain(discovery)).toBe(2);
    expect(await drain(discovery)).toBe(0);
    await slow.query('commit');
    slow.release();
    expect(await drain(discovery)).toBe(1);
    await stranger.query('rollback');
    await stranger.end();
    expect(await drain(discovery)).toBe(0);
  });

  it('does not lose the rows of a rolled back neighbour, nor take what was rolled back', async () => {
    const discovery = fresh();
    const first = await db.connect();
    await first.query('begin');
    await first.query(`select posthaste.enqueue('a', 'gone', '{}')`);
    await enqueueMany(db, 'a', 'kept', 2);
    expect(await drain(discovery)).toBe(2);
    await first.query('rollback');
    first.release();
    expect(await drain(discovery)).toBe(0);
    await enqueueMany(db, 'a', 'kept', 1);
    expect(await drain(discovery)).toBe(1);
  });

  it('does not walk rows that were deleted but are still pinned by an old snapshot', async () => {
    const discovery = fresh();
    await drain(discovery);
    const idle = await db.connect();
    await idle.query('set idle_in_transaction_session_timeout = 0');
    await idle.query('begin isolation level repeatable read');
    await idle.query('select 1');
    await enqueueMany(db, 'a', 'many', 20_000);
    let taken = 0;
    while (taken < 20_000) taken += await drain(discovery);
    const before = await blocksRead();
    for (let i = 0; i < 10; i++) {
      await enqueueMany(db, 'a', 'one', 1);
      expect(await drain(discovery)).toBe(1);
    }
    // Ten polls that walked 20,000 dead rows would touch as many pages each.
    expect((await blocksRead()) - before).toBeLessThan(20_000);
    await idle.query('rollback');
    idle.release();
  });

  it('hands a shard over with its backlog: a new owner finds everything that waits', async () => {
    await enqueueMany(db, 'a', 'left', 5);
    expect(await drain(fresh())).toBe(5);
  });
});

describe('a lost lease', () => {
  it('fences the old owner: its fan-out is refused and changes nothing', async () => {
    await enqueueMany(db, 'b', 'fenced', 1);
    const stale = leases.map((lease) => ({ ...lease, epoch: lease.epoch - 1 }));
    const ask = {
      tenants: [{ tenant: 'b', after: { xid: '0', seq: 0 }, limit: 10, room: 10 }],
      dispatch: 'dsp_y',
      singles: 0,
      aliveMs: 1_000,
    };
    await expect(fanOut(db, { ...ask, leases: stale })).rejects.toMatchObject({ code: 'PHFEN' });
    expect((await db.query('select count(*) as c from posthaste.outbox')).rows[0].c).toBe(1);
    expect((await fanOut(db, { ...ask, leases })).tenants[0]!.events).toBe(1);
  });
});

async function blocksRead(): Promise<number> {
  await db.query('select pg_stat_force_next_flush()');
  const result = await db.query(
    `select sum(idx_blks_hit + idx_blks_read + heap_blks_hit + heap_blks_read) as blocks from pg_statio_all_tables where schemaname = 'posthaste' and relname = 'outbox'`,
  );
  return Number(result.rows[0].blocks);
}
