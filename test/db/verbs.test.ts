/** The four verbs against real sessions: what is granted, what is refused, and that slots stay exact. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { type AttemptRecord, type ClaimAnswer, finish, giveBack, reap, record } from '../../src/db/verbs.ts';
import { claim } from '../support/claim.ts';
import { attemptRecord, interleave } from '../support/interleave.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

let db: Pool;
let endpoint: string;
let tenant: string;
let count = 0;

beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 12 });
});
afterAll(() => db.end());
beforeEach(async () => {
  await db.query('truncate posthaste.work, posthaste.deliveries, posthaste.attempts, posthaste.dead_letters');
  tenant = `t${++count}`;
  await seedTenant(db, tenant);
  endpoint = (await seedEndpoint(db, tenant, { url: 'https://example.com/', cap: 5 })).id;
});

const asks = (deliveries: string[], n = 0, generation = 1) =>
  deliveries.map((delivery) => ({ delivery, generation, n }));
const inFlight = async (id = endpoint): Promise<number> =>
  (await db.query('select in_flight from posthaste.endpoint_state where endpoint = $1', [id])).rows[0]
    .in_flight;
const sending = async (id = endpoint): Promise<number> =>
  (await db.query(`select count(*) as c from posthaste.work where endpoint = $1 and state = 'sending'`, [id]))
    .rows[0].c;
const verdicts = (answers: ClaimAnswer[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const { verdict } of answers) counts[verdict] = (counts[verdict] ?? 0) + 1;
  return counts;
};

const result = (
  answer: ClaimAnswer,
  outcome: AttemptRecord['outcome'],
  change: Partial<AttemptRecord> = {},
): AttemptRecord => attemptRecord(answer, endpoint, outcome, change);

describe('claim', () => {
  it('grants as many as there are slots and says later to the others', async () => {
    const deliveries = await seedWork(db, tenant, endpoint, 8);
    const answers = await claim(db, asks(deliveries));
    expect(verdicts(answers)).toEqual({ granted: 5, later: 3 });
    expect(await inFlight()).toBe(5);
    expect(new Set(answers.filter((a) => a.verdict === 'granted').map((a) => a.n))).toEqual(new Set([1]));
  });

  it('never grants a row twice, whoever asks at the same time', async () => {
    const deliveries = await seedWork(db, tenant, endpoint, 5);
    const rounds = await Promise.all(Array.from({ length: 10 }, () => claim(db, asks(deliveries))));
    expect(rounds.flat().filter((a) => a.verdict === 'granted')).toHaveLength(5);
    expect(await inFlight()).toBe(5);
  });

  it('counts afresh after waiting for the lock: a session held between lock and commit grants nothing twice', async () => {
    const deliveries = await seedWork(db, tenant, endpoint, 20);
    const holder = await db.connect();
    try {
      await holder.query('begin');
      const first = await claim(holder, asks(deliveries.slice(0, 4)));
      expect(verdicts(first)).toEqual({ granted: 4 });
      const others = [claim(db, asks(deliveries.slice(0, 10))), claim(db, asks(deliveries.slice(10)))];
      await waitUntilBlocked(db, 2);
      await holder.query('commit');
      const answers = (await Promise.all(others)).flat();
      expect(answers.filter((a) => a.verdict === 'granted')).toHaveLength(1);
      expect(answers.filter((a) => a.verdict === 'busy')).toHaveLength(4);
    } finally {
      holder.release();
    }
    expect(await inFlight()).toBe(5);
    expect(await sending()).toBe(5);
  });

  it('grants slots given up by a session that rolled back', async () => {
    const deliveries = await seedWork(db, tenant, endpoint, 6);
    const holder = await db.connect();
    await holder.query('begin');
    await claim(holder, asks(deliveries.slice(0, 5)));
    const other = claim(db, asks(deliveries));
    await waitUntilBlocked(db, 1);
    await holder.query('rollback');
    holder.release();
    expect(verdicts(await other)).toEqual({ granted: 5, later: 1 });
    expect(await inFlight()).toBe(5);
  });

  it('refuses what is not due, past its deadline, cancelled, claimed, outdated, unknown, or of a disabled endpoint', async () => {
    const [early, expired, cancelled, busy, stale, replayed] = await seedWork(db, tenant, endpoint, 6);
    await db.query(`update posthaste.work set due_at = now() + interval '1 minute' where delivery = $1`, [
      early,
    ]);
    await db.query(`update posthaste.work set deadline = now() - interval '1 second' where delivery = $1`, [
      expired,
    ]);
    await db.query('update posthaste.work set cancel_requested = true where delivery = $1', [cancelled]);
    await db.query('update posthaste.work set n = 3 where delivery = $1', [stale]);
    await db.query('update posthaste.work set generation = 2 where delivery = $1', [replayed]);
    await claim(db, asks([busy!]));
    const answers = await claim(
      db,
      asks([early!, expired!, cancelled!, busy!, stale!, replayed!, 'dlv_none']),
    );
    const by = new Map(answers.map((a) => [a.delivery, a]));
    expect(
      [early, expired, cancelled, busy, stale, replayed, 'dlv_none'].map((d) => by.get(d!)!.verdict),
    ).toEqual(['early', 'expired', 'cancelled', 'busy', 'stale', 'stale', 'gone']);
    expect(by.get(early!)!.until!.getTime()).toBeGreaterThan(Date.now() + 50_000);
    expect(by.get(busy!)!.until!.getTime()).toBeGreaterThan(Date.now() + 20_000);
    const [other] = await seedWork(db, tenant, endpoint, 1);
    await db.query(`update posthaste.endpoints set state = 'disabled' where id = $1`, [endpoint]);
    expect((await claim(db, asks([other!])))[0]!.verdict).toBe('disabled');
  });
});

describe('record', () => {
  it('moves a delivered row to deliveries, frees its slot and writes the attempt', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [granted] = await claim(db, asks([delivery!]));
    expect(await record(db, [result(granted!, 'delivered')])).toMatchObject([
      { delivery, state: 'delivered' },
    ]);
    expect(await inFlight()).toBe(0);
    const rows = await db.query('select state, n from posthaste.deliveries where id = $1', [delivery]);
    expect(rows.rows).toEqual([{ state: 'delivered', n: 1 }]);
    const attempts = await db.query(
      'select n, status, class, decision, response_body from posthaste.attempts where delivery = $1',
      [delivery],
    );
    expect(attempts.rows).toEqual([
      { n: 1, status: 200, class: 'ok', decision: 'delivered', response_body: Buffer.from('x\0y') },
    ]);
  });

  it('is refused as stale when the token is gone, and changes nothing', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [granted] = await claim(db, asks([delivery!]));
    await giveBack(db, [{ delivery: delivery!, endpoint, token: granted!.token! }]);
    const [again] = await claim(db, asks([delivery!]));
    expect(again!.n).toBe(1);
    expect(await record(db, [result(granted!, 'delivered')])).toMatchObject([{ state: 'stale' }]);
    expect(await inFlight()).toBe(1);
    expect(await record(db, [result(again!, 'delivered')])).toMatchObject([{ state: 'delivered' }]);
  });

  it('tells a reaped attempt from its successor when both come in one batch', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [first] = await claim(db, asks([delivery!]));
    await db.query(
      `update posthaste.work set claim_until = now() - interval '16 seconds', scan_at = now() - interval '1 second'`,
    );
    await reap(db, [...Array(16).keys()], 15_000, 100);
    const [second] = await claim(db, asks([delivery!], 1));
    const answers = await record(db, [result(first!, 'retrying'), result(second!, 'delivered')]);
    expect(new Map(answers.map((a) => [a.token, a.state]))).toEqual(
      new Map([
        [first!.token, 'stale'],
        [second!.token, 'delivered'],
      ]),
    );
    const attempts = await db.query(
      'select n, class from posthaste.attempts where delivery = $1 order by n, class',
      [delivery],
    );
    expect(attempts.rows).toEqual([
      { n: 1, class: 'worker_lost' },
      { n: 2, class: 'ok' },
    ]);
  });

  it('counts after expiry too, as long as nobody took the claim over', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [granted] = await claim(db, asks([delivery!]));
    await db.query(`update posthaste.work set claim_until = now() - interval '1 minute'`);
    expect(await record(db, [result(granted!, 'delivered')])).toMatchObject([{ state: 'delivered' }]);
  });

  it('cancels at the result: a 2xx is still delivered, anything else is cancelled', async () => {
    const [good, bad] = await seedWork(db, tenant, endpoint, 2);
    const answers = await claim(db, asks([good!, bad!]));
    const by = new Map(answers.map((a) => [a.delivery, a]));
    await db.query('select posthaste.cancel($1, d) from unnest($2::text[]) d', [tenant, [good, bad]]);
    const recorded = await record(db, [
      result(by.get(good!)!, 'delivered'),
      result(by.get(bad!)!, 'retrying'),
    ]);
    expect(new Map(recorded.map((r) => [r.delivery, r.state]))).toEqual(
      new Map([
        [good, 'delivered'],
        [bad, 'cancelled'],
      ]),
    );
  });

  it('writes a dead letter when a delivery dies', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [granted] = await claim(db, asks([delivery!]));
    await record(db, [result(granted!, 'dead')]);
    const letters = await db.query(
      'select reason, attempts, last_status from posthaste.dead_letters where delivery = $1',
      [delivery],
    );
    expect(letters.rows).toEqual([{ reason: 'max_attempts', attempts: 1, last_status: 500 }]);
  });
});

describe('reap', () => {
  const shards = Array.from({ length: 16 }, (_, i) => i);

  it('turns an expired claim into an unknown attempt, frees the slot and makes the row due', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    const [granted] = await claim(db, asks([delivery!]));
    await db.query(
      `update posthaste.work set claim_until = now() - interval '16 seconds', scan_at = now() - interval '1 second'`,
    );
    expect(await reap(db, shards, 15_000, 100)).toEqual([{ delivery, n: 1 }]);
    expect(await inFlight()).toBe(0);
    const attempt = await db.query('select n, class, decision from posthaste.attempts where delivery = $1', [
      delivery,
    ]);
    expect(attempt.rows).toEqual([{ n: 1, class: 'worker_lost', decision: 'unknown' }]);
    expect(await record(db, [result(granted!, 'delivered')])).toMatchObject([{ state: 'stale' }]);
    const [again] = await claim(db, asks([delivery!], 1));
    expect(again).toMatchObject({ verdict: 'granted', n: 2 });
    const row = await db.query('select burned from posthaste.work where delivery = $1', [delivery]);
    expect(row.rows[0].burned).toBe(0);
  });

  it('leaves claims alone that have not expired for the whole grace', async () => {
    const [delivery] = await seedWork(db, tenant, endpoint, 1);
    await claim(db, asks([delivery!]));
    await db.query(
      `update posthaste.work set claim_until = now() - interval '14 seconds', scan_at = now() - interval '1 second'`,
    );
    expect(await reap(db, shards, 15_000, 100)).toEqual([]);
    expect(await inFlight()).toBe(1);
  });
});

describe('finish', () => {
  it('ends only what has a reason to end', async () => {
    const [live, late] = await seedWork(db, tenant, endpoint, 2);
    await db.query(`update posthaste.work set deadline = now() - interval '1 second' where delivery = $1`, [
      late,
    ]);
    expect(await finish(db, [live!, late!])).toEqual([
      { delivery: late, state: 'dead', reason: 'deadline', workflow: false },
    ]);
  });
});

describe('all verbs together', () => {
  it('keep in_flight exact and under the cap through 2,000 random interleavings', async () => {
    await interleave(db, { operations: 2_000, seed: 12_345 });
  }, 60_000);
});

async function waitUntilBlocked(pool: Pool, sessions: number): Promise<void> {
  for (;;) {
    const waiting = await pool.query(
      `select count(*) as c from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
    );
    if (waiting.rows[0].c >= sessions) return;
  }
}
