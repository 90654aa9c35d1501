/**
 * The four verbs and what operators do, in random order from several sessions at once, and what must hold whatever the order was. Used by
 * test/db/verbs.test.ts (some) and test/faults/interleave.heavy.test.ts (many).
 */
import { expect } from 'vitest';
import type { Pool } from '../../src/db/pool.ts';
import { insertReplay, replayPage } from '../../src/db/replays.ts';
import { type AttemptRecord, type ClaimAnswer, finish, giveBack, reap, record } from '../../src/db/verbs.ts';
import { newId } from '../../src/ids.ts';
import { claim } from './claim.ts';
import { seedEndpoint, seedTenant, seedWork } from './seed.ts';

/** What a worker would record for a granted claim. */
export function attemptRecord(
  answer: ClaimAnswer,
  endpoint: string,
  outcome: AttemptRecord['outcome'],
  change: Partial<AttemptRecord> = {},
): AttemptRecord {
  const now = Date.now();
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
    response_body: Buffer.from('x\0y'),
    response_truncated: false,
    fresh_retry: false,
    rule: null,
    own_due_at: null,
    retry_after_s: null,
    health: 'ok',
    epoch: 1,
    revision: 1,
    pause_until: null,
    ...change,
  };
}

const SHARDS = Array.from({ length: 16 }, (_, i) => i);
const SESSIONS = 6;
const NO_FILTER = {
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

export interface Interleaved {
  /** How often each operation was made, and how many claims were granted. */
  made: Record<string, number>;
  attempts: number;
}

/** A granted claim with what a worker knows of its row. */
interface Held extends ClaimAnswer {
  generation: number;
  step: number;
  resume_at: Date | null; // set: an operator asked for this attempt
}

/**
 * Delivery, generation and step → when its next scheduled attempt is due. More than one time only where a worker thought
 * lost recorded late, and its record may not have stood.
 */
type Schedule = Map<string, Set<number>>;

/**
 * Random claims, records, give backs, reaps, lost workers, late records, cancels, resends and pages of replays from six
 * sessions. While they run no endpoint is above its cap, and no resend moves what the schedule said; when they have
 * ended slots are exact, no attempt number is missing or doubled, and a full reap leaves nothing in flight.
 */
export async function interleave(
  db: Pool,
  options: { operations: number; seed: number },
): Promise<Interleaved> {
  const tenant = `interleave${options.seed}`;
  await seedTenant(db, tenant);
  const caps = [5, 3, 1];
  const endpoints: string[] = [];
  for (const cap of caps)
    endpoints.push((await seedEndpoint(db, tenant, { url: 'https://example.com/', cap })).id);
  const endpointOf = new Map<string, string>();
  const refill = async (): Promise<void> => {
    for (const endpoint of endpoints)
      for (const delivery of await seedWork(db, tenant, endpoint, 40)) endpointOf.set(delivery, endpoint);
  };
  await refill();

  const schedule: Schedule = new Map();
  const replays: string[] = [];
  const held: Held[] = []; // claims of living workers
  const lost: Held[] = []; // claims whose worker was killed, or thought to be
  const made: Record<string, number> = {};
  let worst = Number.NEGATIVE_INFINITY;
  let state = options.seed >>> 0;
  const random = (): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return state / 2 ** 32;
  };
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
  const take = (from: Held[]): Held | undefined => from.splice(Math.floor(random() * from.length), 1)[0];
  const count = (what: string, by = 1): void => {
    made[what] = (made[what] ?? 0) + by;
  };
  const batch = (from: Held[]): Held[] =>
    Array.from({ length: 1 + Math.floor(random() * 4) }, () => take(from)).filter((a) => a !== undefined);
  const outcome = (): AttemptRecord['outcome'] => {
    const dice = random();
    return dice < 0.15 ? 'delivered' : dice < 0.2 ? 'dead' : 'retrying';
  };
  // A scheduled attempt that fails goes one step on; one that an operator asked for goes back to where it was.
  const next = (answer: Held): Partial<AttemptRecord> => {
    if (answer.resume_at !== null) return { step: answer.step, due_at: answer.resume_at.getTime() };
    const due = Date.now() + (random() < 0.5 ? 0 : 3_600_000);
    const step = answer.step + 1;
    const key = `${answer.delivery} ${answer.generation} ${step}`;
    schedule.set(key, (schedule.get(key) ?? new Set()).add(due));
    return { step, due_at: due };
  };
  const recordAll = (answers: readonly Held[]) =>
    record(
      db,
      answers.map((answer) => {
        const what = outcome();
        const change = what === 'retrying' ? next(answer) : {};
        return attemptRecord(answer, endpointOf.get(answer.delivery)!, what, change);
      }),
    );
  const newReplay = async (action: 'resend' | 'cancel', states: string[]): Promise<void> => {
    const id = await insertReplay(db, {
      id: newId('rpl'),
      tenant,
      action,
      source: 'deliveries',
      filter: { ...NO_FILTER, states, endpoint: action === 'cancel' ? pick(endpoints) : null },
      missed: false,
      rate: 5,
      key: null,
      aliveMs: 60_000,
    });
    replays.push(id!);
  };

  const operations: Record<string, { weight: number; run: () => Promise<unknown> }> = {
    claim: {
      weight: 40,
      async run() {
        const some = [
          ...new Set(
            Array.from({ length: 1 + Math.floor(random() * 8) }, () => pick([...endpointOf.keys()])),
          ),
        ];
        const rows = await db.query(
          'select delivery, n, generation from posthaste.work where delivery = any ($1)',
          [some],
        );
        const granted = (await claim(db, rows.rows)).filter((a) => a.verdict === 'granted');
        count('granted', granted.length);
        const known = await db.query(
          `select w.delivery, w.generation, w.step, w.resume_at from posthaste.work w
           join unnest($1::text[], $2::bigint[]) a (delivery, token) on w.delivery = a.delivery and w.token = a.token`,
          [granted.map((a) => a.delivery), granted.map((a) => a.token)],
        );
        const of = new Map(known.rows.map((row) => [row.delivery, row]));
        held.push(...granted.map((answer) => ({ ...answer, ...of.get(answer.delivery) })));
        count('manual', known.rows.filter((row) => row.resume_at !== null).length);
      },
    },
    record: { weight: 26, run: () => recordAll(batch(held)) },
    giveBack: {
      weight: 12,
      run: () =>
        giveBack(
          db,
          batch(held).map((a) => ({
            delivery: a.delivery,
            endpoint: endpointOf.get(a.delivery)!,
            token: a.token!,
          })),
        ),
    },
    kill: {
      weight: 8, // its worker is killed: the claim expires
      async run() {
        const gone = batch(held);
        lost.push(...gone);
        // One by one: this has no endpoint's lock, and rows taken in another order than others take them would deadlock.
        for (const { delivery, token } of gone)
          await db.query(
            `update posthaste.work set claim_until = now() - interval '1 minute', scan_at = now() where delivery = $1 and token = $2`,
            [delivery, token],
          );
      },
    },
    lateRecord: { weight: 4, run: () => recordAll(batch(lost)) }, // it was only cut off: its answer comes late
    reap: { weight: 6, run: () => reap(db, SHARDS, 15_000, 1 + Math.floor(random() * 20)) },
    cancel: {
      weight: 2,
      run: () => db.query('select * from posthaste.cancel($1, $2)', [tenant, pick([...endpointOf.keys()])]),
    },
    newReplay: {
      weight: 1,
      run: () =>
        random() < 0.2
          ? newReplay('cancel', ['ready', 'sending', 'retrying', 'held'])
          : newReplay('resend', ['dead', 'cancelled', 'delivered', 'retrying', 'ready']),
    },
    page: {
      weight: 6,
      async run() {
        if (replays.length === 0) return;
        const id = pick(replays);
        await db.query('update posthaste.replays set next_at = created_at where id = $1', [id]);
        await replayPage(db, id, 60_000);
      },
    },
    resend: {
      weight: 8,
      run: () => db.query('select * from posthaste.resend($1, $2)', [tenant, pick([...endpointOf.keys()])]),
    },
    finish: { weight: 1, run: () => finish(db, [pick([...endpointOf.keys()])]) },
  };
  const total = Object.values(operations).reduce((sum, o) => sum + o.weight, 0);
  const step = async (): Promise<void> => {
    let dice = random() * total;
    const [name, operation] = Object.entries(operations).find(([, o]) => {
      dice -= o.weight;
      return dice < 0;
    })!;
    count(name);
    await operation.run();
    const over = await db.query(
      'select max(s.in_flight - s.cap) as over from posthaste.endpoint_state s where s.endpoint = any ($1)',
      [endpoints],
    );
    worst = Math.max(worst, over.rows[0].over);
    if (random() < 0.05) await expectScheduleKept(db, tenant, schedule);
  };
  let left = options.operations;
  let steps = 0;
  await Promise.all(
    Array.from({ length: SESSIONS }, async () => {
      while (left-- > 0) {
        await step();
        if (++steps % 500 === 0) await refill();
      }
    }),
  );

  expect(worst).toBeLessThanOrEqual(0);
  await expectExact(db, tenant);
  await expectScheduleKept(db, tenant, schedule);
  // Every worker is gone now: one reap later nothing is in flight.
  await db.query(
    `update posthaste.work set claim_until = now() - interval '1 minute', scan_at = now() where tenant = $1 and state = 'sending'`,
    [tenant],
  );
  await reap(db, SHARDS, 15_000, 1_000);
  await expectExact(db, tenant);
  const busy = await db.query(
    'select sum(in_flight)::int as c from posthaste.endpoint_state where tenant = $1',
    [tenant],
  );
  expect(busy.rows[0].c).toBe(0);
  const attempts = await db.query('select count(*)::int as c from posthaste.attempts where tenant = $1', [
    tenant,
  ]);
  return { made, attempts: attempts.rows[0].c };
}

/** Slots equal claimed rows, and attempt numbers are 1, 2, 3 … without gap or double up to the row's own n. */
async function expectExact(db: Pool, tenant: string): Promise<void> {
  const slots = await db.query(
    `select s.endpoint, s.in_flight, (select count(*)::int from posthaste.work w where w.endpoint = s.endpoint and w.state = 'sending') as sending
     from posthaste.endpoint_state s where s.tenant = $1`,
    [tenant],
  );
  for (const row of slots.rows) expect(row.in_flight).toBe(row.sending);
  const wrong = await db.query(
    `with d as (
       select delivery, n - (state = 'sending')::int as n from posthaste.work where tenant = $1
       union all select id, n from posthaste.deliveries where tenant = $1
     )
     select d.delivery, d.n, count(a.n)::int as attempts, count(distinct a.n)::int as numbers, max(a.n) as last
     from d left join posthaste.attempts a on a.delivery = d.delivery
     group by 1, 2 having count(a.n) <> d.n or count(distinct a.n) <> d.n or coalesce(max(a.n), 0) <> d.n`,
    [tenant],
  );
  expect(wrong.rows).toEqual([]);
}

/** What waits for its schedule is due when the schedule said, or is hurried and knows when it would have been due. (After a lost worker it is due at once.) */
async function expectScheduleKept(db: Pool, tenant: string, schedule: Schedule): Promise<void> {
  const { rows } = await db.query(
    `select delivery, generation, step, coalesce(resume_at, due_at) as due from posthaste.work where tenant = $1 and state = 'retrying' and step > 0 and last_class <> 'worker_lost'`,
    [tenant],
  );
  const moved = rows.filter(
    (row) => schedule.get(`${row.delivery} ${row.generation} ${row.step}`)?.has(row.due.getTime()) !== true,
  );
  expect(moved).toEqual([]);
}
