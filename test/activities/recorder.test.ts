/** The recorder keeps what receivers answered, whatever the database says, unless the row itself is wrong. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createRecorder } from '../../src/activities/recorder.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import { claim } from '../support/claim.ts';
import { attemptRecord } from '../support/interleave.ts';
import { createDatabase, type TestDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';
import { execute } from '../support/template.ts';

let database: TestDatabase;
let db: Pool;
let endpoint: string;
const log = createLog({ level: 'silent' });
beforeAll(async () => {
  database = await createDatabase();
  db = createPool(database.url, { max: 4 });
  await seedTenant(db, 'a');
  endpoint = (await seedEndpoint(db, 'a', { url: 'https://example.com/', cap: 100 })).id;
});
afterAll(() => db.end());

async function claimed(count: number) {
  const deliveries = await seedWork(db, 'a', endpoint, count);
  return claim(
    db,
    deliveries.map((delivery) => ({ delivery, generation: 1, n: 0 })),
  );
}

it('holds answers while the database is read-only after a failover, and writes them when it is not', async () => {
  const answers = await claimed(5);
  // A pool of its own, connected after the switch, as after a failover.
  await execute(database.adminUrl, `alter database ${database.name} set default_transaction_read_only = on`);
  const standby = createPool(database.url, { max: 2 });
  const recorder = createRecorder({ db: standby, log });
  const written = answers.map((answer) => recorder.add(attemptRecord(answer, endpoint, 'delivered')));
  const first = await Promise.race([
    Promise.allSettled(written),
    new Promise((resolve) => setTimeout(resolve, 500, 'waiting')),
  ]);
  expect(first).toBe('waiting');
  expect(recorder.waiting()).toBe(5);
  await execute(database.adminUrl, `alter database ${database.name} reset default_transaction_read_only`);
  await execute(
    database.adminUrl,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database.name}' and pid <> pg_backend_pid()`,
  );
  expect((await Promise.all(written)).map((recorded) => recorded.state)).toEqual(
    new Array(5).fill('delivered'),
  );
  await standby.end();
}, 30_000);

it('writes the neighbours of a row that can not be written, and fails that one alone', async () => {
  const answers = await claimed(4);
  const recorder = createRecorder({ db, log });
  const written = answers.map((answer, i) =>
    recorder.add({
      ...attemptRecord(answer, endpoint, 'delivered'),
      ...(i === 2 ? { status: 99_999_999 } : {}),
    }),
  );
  const settled = await Promise.allSettled(written);
  expect(settled.map((result) => result.status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
  await recorder.drain();
});
