/** What a statement reads, in rows and not in time. */
import type { Client, Pool } from '../../src/db/pool.ts';

/** Rows of a table that a call looked at, by index or not. What PostgreSQL counts includes what it has not yet published. */
export async function looksOf(
  db: Pool,
  call: (client: Client) => Promise<unknown>,
  table = 'work',
): Promise<number> {
  const client = await db.connect();
  const looks = async (): Promise<number> => {
    const { rows } = await client.query(
      `select (pg_stat_get_xact_tuples_returned(t.oid)
         + (select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) from pg_index i where i.indrelid = t.oid))::int as looks
       from (select $1::regclass as oid) t`,
      [`posthaste.${table}`],
    );
    return rows[0].looks;
  };
  try {
    await client.query('begin');
    const before = await looks();
    await call(client);
    const after = await looks();
    await client.query('commit');
    return after - before;
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}
