/** The four verbs and operators' actions in 10,000 random orders: slots, caps, attempt numbers and schedules stay exact. Runs in test/db with 2,000. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { interleave } from '../support/interleave.ts';
import { createDatabase } from '../support/postgres.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 12 });
});
afterAll(() => db.end());

describe('claim, record, give back, reap, kill, cancel, resend and replay, interleaved at random', () => {
  it.each([1, 4])(
    'keep slots exact and numbers gap-free through 10,000 operations of six sessions (seed %i)',
    async (seed) => {
      const { made, attempts } = await interleave(db, { operations: 10_000, seed });
      console.log(`seed ${seed}: ${JSON.stringify(made)}, ${attempts} attempts`);
      const operations = [
        'granted',
        'manual',
        'record',
        'giveBack',
        'kill',
        'lateRecord',
        'reap',
        'cancel',
        'resend',
        'page',
      ];
      for (const what of operations) expect(made[what], what).toBeGreaterThan(50);
    },
    120_000,
  );
});
