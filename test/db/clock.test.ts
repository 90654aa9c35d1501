import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { createDbClock } from '../../src/db/clock.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createDatabase } from '../support/postgres.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase({ empty: true })).url, { max: 1 });
});
afterAll(() => db.end());

it('follows the database, not the clock of this machine, also when that one jumps', async () => {
  const real = Date.now;
  vi.spyOn(Date, 'now').mockImplementation(() => real() + 3_600_000);
  const clock = createDbClock(db);
  expect(clock.uncertaintyMs()).toBe(Number.POSITIVE_INFINITY);
  await clock.sync();
  vi.spyOn(Date, 'now').mockImplementation(() => real() - 3_600_000);
  const before = clock.now();
  const database = (await db.query('select (extract(epoch from clock_timestamp()) * 1000)::float8 as now'))
    .rows[0].now;
  const after = clock.now();
  expect(database).toBeGreaterThanOrEqual(before - clock.uncertaintyMs());
  expect(database).toBeLessThanOrEqual(after + clock.uncertaintyMs());
});
