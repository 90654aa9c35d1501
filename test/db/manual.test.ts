/** A manual attempt whose worker is lost, and the schedule around it. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { classifyResult } from '../../src/activities/result.ts';
import { type LoadedDelivery, loadDeliveries } from '../../src/db/load.ts';
import { resend } from '../../src/db/operators.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { reap, record } from '../../src/db/verbs.ts';
import { claim } from '../support/claim.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

const SHARDS = Array.from({ length: 16 }, (_, i) => i);
let db: Pool;
let delivery: string;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 5 });
  await seedTenant(db, 't');
  const { id } = await seedEndpoint(db, 't', { url: 'https://example.com/' });
  [delivery] = (await seedWork(db, 't', id, 1)) as [string];
  await db.query(
    `update posthaste.work w set event_at = v.created_at from posthaste.events v where v.id = w.event`,
  );
});
afterAll(() => db.end());

const read = async (): Promise<LoadedDelivery> => (await loadDeliveries(db, [delivery]))[0]!;

/** Claims as a worker would; what comes of it is a failure of ours, written by the code that decides. */
async function claimed() {
  const row = await read();
  const [answer] = await claim(db, [{ delivery, generation: row.generation, n: row.n }]);
  expect(answer!.verdict).toBe('granted');
  return { row, answer: answer! };
}
async function fail(): Promise<LoadedDelivery> {
  const { row, answer } = await claimed();
  const { record: failed } = classifyResult({
    row,
    endpoint: undefined,
    claimed: answer,
    result: undefined,
    logged: '[]',
    bytes: 0,
    nowMs: Date.now(),
    ownWorkflow: () => false,
  });
  await record(db, [failed]);
  return read();
}

it('a lost manual attempt is made again at once, and when that fails the schedule is as it was', async () => {
  const before = await fail();
  expect(before).toMatchObject({ state: 'retrying', n: 1, burned: 0, resume_at: null });
  await resend(db, 't', delivery);
  expect(await read()).toMatchObject({ resume_at: before.due_at });
  await claimed();
  await db.query(
    `update posthaste.work set claim_until = now() - interval '1 minute', scan_at = now() where delivery = $1`,
    [delivery],
  );
  expect(await reap(db, SHARDS, 1_000, 10)).toEqual([{ delivery, n: 2 }]);
  const lost = await read();
  expect(lost).toMatchObject({ state: 'ready', n: 2, burned: 0, resume_at: before.due_at });
  expect(lost.due_at.getTime()).toBeLessThanOrEqual(Date.now() + 1_000);
  expect(await fail()).toMatchObject({
    state: 'retrying',
    n: 3,
    step: before.step,
    burned: before.burned,
    due_at: before.due_at,
    resume_at: null,
  });
  const { rows } = await db.query('select n, class, rule, decision from posthaste.attempts order by n');
  expect(rows.map((row) => `${row.n} ${row.class} ${row.rule} ${row.decision}`)).toEqual([
    '1 local ours retrying',
    '2 worker_lost worker_lost unknown',
    '3 local manual retrying',
  ]);
});
