/** Transactions whose connection dies under them. */
import { expect, it } from 'vitest';
import { createPool, withTransaction } from '../../src/db/pool.ts';
import { createDatabase } from '../support/postgres.ts';

it('a connection that dies between two statements fails its transaction, not the process', async () => {
  const db = createPool((await createDatabase({ empty: true })).url, { max: 2 });
  const lost = withTransaction(db, async (client) => {
    const { pid } = (await client.query('select pg_backend_pid() as pid')).rows[0];
    const died = new Promise((resolve) => client.once('error', resolve));
    await db.query('select pg_terminate_backend($1)', [pid]);
    await died;
    await client.query('select 1');
  });
  await expect(lost).rejects.toThrow();
  // And the pool gives that connection to nobody.
  expect(await withTransaction(db, async (client) => (await client.query('select 1 as one')).rows)).toEqual([
    { one: 1 },
  ]);
  await db.end();
});
