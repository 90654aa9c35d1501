/** The SQL that grants is the pure function that says what should be granted (src/domain/permits.ts). */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { claimPump, leavePump, newPump, park, record } from '../../src/db/verbs.ts';
import { type PermitRow, permits, split } from '../../src/domain/permits.ts';
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

const NOW = Date.parse('2026-03-01T12:00:00Z');
const at = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

/** posthaste.permits of a row that exists nowhere. */
async function granted(row: PermitRow): Promise<{ slots: number; tokens: number | null }> {
  const result = await db.query(
    `select p.slots, p.tokens from posthaste.permits(
       jsonb_populate_record(null::posthaste.endpoint_state, $1::jsonb), $2::timestamptz) p`,
    [
      JSON.stringify({
        endpoint: 'ep',
        tenant: 't',
        cap: row.cap,
        in_flight: row.inFlight,
        fails_in_row: row.failsInRow,
        busy_since: at(NOW - row.silentMs),
        probe_at: at(row.probeAtMs),
        rate: row.rate,
        tokens: row.tokens,
        tokens_at: at(row.tokensAtMs),
        pause_until: row.pauseUntilMs === null ? '-infinity' : at(row.pauseUntilMs),
      }),
      at(NOW),
    ],
  );
  return result.rows[0];
}

const near = fc.integer({ min: -20_000, max: 20_000 });
const maybe = <T>(values: fc.Arbitrary<T>) => fc.option(values, { nil: null });
const anyRow = fc.record({
  cap: fc.integer({ min: 1, max: 30 }),
  inFlight: fc.integer({ min: 0, max: 30 }),
  failsInRow: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 30 })),
  silent: fc.integer({ min: 0, max: 5_000 }).map((ms) => Math.round(ms / 100) * 100),
  probeAtMs: maybe(near.map((ms) => NOW + ms)),
  rate: maybe(fc.integer({ min: 1, max: 400 }).map((n) => n / 8)),
  tokens: fc.integer({ min: 0, max: 400 }).map((n) => n / 8),
  tokensAtMs: near.map((ms) => NOW + Math.round(ms / 1_000) * 1_000),
  pauseUntilMs: maybe(near.map((ms) => NOW + ms)),
});

it('grants in SQL what the specification grants, for any row', async () => {
  await fc.assert(
    fc.asyncProperty(anyRow, async ({ silent, ...row }) => {
      const given = { ...row, silentMs: row.inFlight > 0 ? silent : 0 };
      const expected = permits(given, NOW);
      const answer = await granted(given);
      expect(answer.slots).toBe(expected.slots);
      expect(answer.tokens ?? Number.POSITIVE_INFINITY).toBeCloseTo(expected.tokens, 3);
    }),
    { numRuns: 400 },
  );
});

describe('a rate limit', () => {
  it('lets a burst of two pass, then one per token, whoever asks', async () => {
    const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    await db.query('update posthaste.endpoint_state set rate_limit = 0.01 where endpoint = $1', [id]);
    const deliveries = await seedWork(db, 'permits', id, 6);
    const asks = deliveries.map((delivery) => ({ delivery, generation: 1, n: 0 }));
    const halves = await Promise.all([claim(db, asks.slice(0, 3)), claim(db, asks.slice(3))]);
    expect(halves.flat().filter((a) => a.verdict === 'granted')).toHaveLength(2);
    expect(halves.flat().filter((a) => a.verdict === 'later')).toHaveLength(4);
  });
});

describe('a pump', () => {
  /** An endpoint in mode pump with `count` held deliveries. */
  const crowded = async (count: number, change: string): Promise<{ id: string; deliveries: string[] }> => {
    const { id } = await seedEndpoint(db, 'permits', { url: 'https://example.com/', cap: 100 });
    const deliveries = await seedWork(db, 'permits', id, count);
    await park(db, deliveries, null);
    await db.query(
      `update posthaste.endpoint_state set keep_pump_until = 'infinity', ${change} where endpoint = $1`,
      [id],
    );
    return { id, deliveries };
  };

  it('is alone: a second one waits until the lease of the first is over', async () => {
    const { id } = await crowded(5, 'cap = 100');
    const [first, second] = [await newPump(db), await newPump(db)];
    expect((await claimPump(db, id, first, 2, 15_000)).claims).toHaveLength(2);
    expect(await claimPump(db, id, second, 2, 15_000)).toMatchObject({ status: 'busy', claims: null });
    await leavePump(db, id, first, null);
    expect((await claimPump(db, id, second, 2, 15_000)).claims).toHaveLength(2);
    expect((await claimPump(db, id, first, 2, 15_000)).status).toBe('busy');
  });

  it('alone sends: everyone else is told that the row is held', async () => {
    const { id, deliveries } = await crowded(1, 'cap = 100');
    const [answer] = await claim(db, [{ delivery: deliveries[0]!, generation: 1, n: 0 }]);
    expect(answer!.verdict).toBe('held');
    const more = await seedWork(db, 'permits', id, 1);
    expect((await claim(db, [{ delivery: more[0]!, generation: 1, n: 0 }]))[0]!.verdict).toBe('held');
    const rows = await db.query(
      'select state, held_deadline = deadline as kept, scan_at = deadline as waits from posthaste.work where endpoint = $1',
      [id],
    );
    expect(rows.rows).toEqual([
      { state: 'held', kept: true, waits: true },
      { state: 'held', kept: true, waits: true },
    ]);
  });

  it('shares its grants between new traffic and backlog as the specification says', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 12 }),
        fc.integer({ min: 0, max: 12 }),
        fc.integer({ min: 0, max: 30 }),
        fc.constantFrom(0, 0.1, 0.25, 0.5, 1),
        fc.integer({ min: 1, max: 12 }),
        async (live, backlog, pumped, share, take) => {
          const { id, deliveries } = await crowded(
            live + backlog,
            `pumped = ${pumped}, catch_up_share = ${share}`,
          );
          // Ids carry their time: the backlog is an hour older.
          await db.query(
            `update posthaste.work set delivery = 'dlv_' || posthaste.id_time(now() - interval '1 hour') || posthaste.id_random()
             where delivery = any ($1)`,
            [deliveries.slice(0, backlog)],
          );
          await db.query(
            `update posthaste.endpoint_state set live_since = now() - interval '10 minutes' where endpoint = $1`,
            [id],
          );
          const taken = (await claimPump(db, id, await newPump(db), take, 15_000)).claims ?? [];
          const old = `dlv_${(await db.query(`select posthaste.id_time(now() - interval '30 minutes') as t`)).rows[0].t}`;
          const expected = split(take, live, backlog, pumped, share);
          expect({
            live: taken.filter((c) => c.delivery >= old).length,
            backlog: taken.filter((c) => c.delivery < old).length,
          }).toEqual(expected);
        },
      ),
      { numRuns: 40 },
    );
  });

  it('takes the backlog by deadline, and replays last', async () => {
    const { id, deliveries } = await crowded(4, 'cap = 1');
    const [late, bulk, soon, middle] = deliveries as [string, string, string, string];
    await db.query(
      `update posthaste.work w set held_deadline = now() + x.remaining, deadline = now() + x.remaining, lane = x.lane
       from unnest($1::text[], array['3 h', '1 h', '1 h', '2 h']::interval[], array['retry', 'bulk', 'retry', 'retry']) x (id, remaining, lane)
       where w.delivery = x.id`,
      [deliveries],
    );
    const pump = await newPump(db);
    const order: string[] = [];
    for (let i = 0; i < 4; i++) {
      const answer = await claimPump(db, id, pump, 10, 15_000);
      expect(answer.claims).toHaveLength(1);
      const [got] = answer.claims!;
      order.push(got!.delivery);
      const granted = { ...got!, verdict: 'granted' as const, until: null, epoch: 1, revision: 1 };
      await record(db, [attemptRecord(granted, id, 'delivered')]);
    }
    expect(order).toEqual([soon, middle, late, bulk]);
  });

  it('makes one probe at a time, and after its answer none before health has looked', async () => {
    const { id } = await crowded(5, `health = 'open', probe_at = now()`);
    const pump = await newPump(db);
    const first = await claimPump(db, id, pump, 10, 15_000);
    expect(first.claims).toHaveLength(1);
    expect((await claimPump(db, id, pump, 10, 15_000)).claims).toBeNull();
    const [got] = first.claims!;
    const granted = { ...got!, verdict: 'granted' as const, until: null, epoch: 2, revision: 1 };
    await record(db, [attemptRecord(granted, id, 'retrying', { health: 'failure', epoch: 2 })]);
    expect((await claimPump(db, id, pump, 10, 15_000)).claims).toBeNull();
  });

  it('ends the mode when little is left, and what was held is ready again', async () => {
    const { id } = await crowded(3, 'cap = 100');
    await db.query(`update posthaste.endpoint_state set keep_pump_until = '-infinity' where endpoint = $1`, [
      id,
    ]);
    await db.query('update posthaste.work set due_at = clock_timestamp() where endpoint = $1', [id]);
    expect((await claimPump(db, id, await newPump(db), 10, 15_000)).status).toBe('shared');
    const rows = await db.query(
      'select state, held_deadline, count(*)::int as c from posthaste.work where endpoint = $1 group by 1, 2',
      [id],
    );
    expect(rows.rows).toEqual([{ state: 'ready', held_deadline: null, c: 3 }]);
    const told = await db.query(
      `select fact ->> 'edit' as edit from posthaste.health_inbox where endpoint = $1 order by id`,
      [id],
    );
    expect(told.rows.map((row) => row.edit)).toEqual(['overloaded', 'drained']);
  });

  it('stays while more than a moment’s work waits', async () => {
    const { id } = await crowded(501, 'cap = 1');
    await db.query(`update posthaste.endpoint_state set keep_pump_until = '-infinity' where endpoint = $1`, [
      id,
    ]);
    await db.query('update posthaste.work set due_at = clock_timestamp() where endpoint = $1', [id]);
    expect((await claimPump(db, id, await newPump(db), 10, 15_000)).status).toBe('pumping');
  });
});
