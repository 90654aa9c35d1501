/** The four verbs against real sessions: what is granted, what is refused, and that slots stay exact. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import {
  type AttemptRecord,
  type ClaimAnswer,
  claim,
  finish,
  giveBack,
  reap,
  record,
} from '../../src/db/verbs.ts';
import { newId } from '../../src/ids.ts';
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
const verdicts = (answers: ClaimAnswer[]) =>
  answers.reduce<Record<string, number>>(
    (all, a) => ({ ...all, [a.verdict]: (all[a.verdict] ?? 0) + 1 }),
    {},
  );

function result(
  answer: ClaimAnswer,
  outcome: AttemptRecord['outcome'],
  change: Partial<AttemptRecord> = {},
): AttemptRecord {
  const now = new Date().toISOString();
  return {
    id: newId('att'),
    delivery: answer.delivery,
    endpoint,
    token: answer.token!,
    n: answer.n!,
    outcome,
    reason: outcome === 'dead' ? 'max_attempts' : null,
    due_at: outcome === 'retrying' ? now : null,
    step: 1,
    burned: 1,
    workflow: false,
    started_at: now,
    duration_ms: 1,
    status: outcome === 'delivered' ? 200 : 500,
    class: outcome === 'delivered' ? 'ok' : 'http_5xx',
    phase: 'headers',
    error: null,
    request_url: 'https://example.com/',
    request_headers: '[]',
    request_bytes: 2,
    head_bytes: 100,
    response_headers: '[]',
    response_body: Buffer.from('x\0y').toString('base64'),
    response_truncated: false,
    fresh_retry: false,
    ...change,
  };
}

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
    expect(await finish(db, [live!, late!])).toEqual([{ delivery: late, state: 'dead', reason: 'deadline' }]);
  });
});

describe('all verbs together', () => {
  it('keep in_flight exact and under the cap through 2,000 random interleavings', async () => {
    await interleave(2_000);
  }, 60_000);
});

/** Random claims, records, give backs, reaps and lost workers from several sessions at once. */
export async function interleave(operations: number): Promise<void> {
  const shards = Array.from({ length: 16 }, (_, i) => i);
  const second = (await seedEndpoint(db, tenant, { url: 'https://example.com/b', cap: 3 })).id;
  const pool = [...(await seedWork(db, tenant, endpoint, 60)), ...(await seedWork(db, tenant, second, 60))];
  const held: ClaimAnswer[] = [];
  let worst = 0;
  let seed = 12345;
  const random = (): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return seed / 2 ** 32;
  };
  const take = (): ClaimAnswer | undefined => held.splice(Math.floor(random() * held.length), 1)[0];
  const endpointOf = new Map(
    (await db.query('select delivery, endpoint from posthaste.work')).rows.map((r) => [
      r.delivery,
      r.endpoint,
    ]),
  );
  const step = async (): Promise<void> => {
    const dice = random();
    if (dice < 0.45) {
      const some = Array.from(
        { length: 1 + Math.floor(random() * 8) },
        () => pool[Math.floor(random() * pool.length)]!,
      );
      const rows = await db.query(
        'select delivery, n, generation from posthaste.work where delivery = any ($1)',
        [[...new Set(some)]],
      );
      const answers = await claim(db, rows.rows);
      held.push(...answers.filter((a) => a.verdict === 'granted'));
    } else if (dice < 0.75) {
      const answer = take();
      if (answer)
        await record(db, [
          {
            ...result(answer, random() < 0.2 ? 'delivered' : 'retrying'),
            endpoint: endpointOf.get(answer.delivery),
          },
        ]);
    } else if (dice < 0.88) {
      const answer = take();
      if (answer)
        await giveBack(db, [
          { delivery: answer.delivery, endpoint: endpointOf.get(answer.delivery), token: answer.token! },
        ]);
    } else if (dice < 0.94) {
      const answer = take(); // its worker is killed: the claim expires
      if (answer)
        await db.query(
          `update posthaste.work set claim_until = now() - interval '1 minute', scan_at = now() where delivery = $1 and token = $2`,
          [answer.delivery, answer.token],
        );
    } else {
      await reap(db, shards, 15_000, 50);
    }
    const over = await db.query(
      'select max(s.in_flight - s.cap) as over from posthaste.endpoint_state s where s.endpoint = any ($1)',
      [[endpoint, second]],
    );
    worst = Math.max(worst, over.rows[0].over);
  };
  let left = operations;
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      while (left-- > 0) await step();
    }),
  );
  await db.query('set session_replication_role = default');
  expect(worst).toBeLessThanOrEqual(0);
  for (const id of [endpoint, second]) expect(await inFlight(id)).toBe(await sending(id));
  const doubled = await db.query(
    'select delivery, n, count(*) from posthaste.attempts group by 1, 2 having count(*) > 1',
  );
  expect(doubled.rows).toEqual([]);
  const gaps = await db.query(
    'select delivery from posthaste.attempts group by delivery having max(n) <> count(*)',
  );
  expect(gaps.rows).toEqual([]);
}

async function waitUntilBlocked(pool: Pool, sessions: number): Promise<void> {
  for (;;) {
    const waiting = await pool.query(
      `select count(*) as c from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
    );
    if (waiting.rows[0].c >= sessions) return;
  }
}
