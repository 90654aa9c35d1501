import { expect, it } from 'vitest';
import { ADMIN_KEY_ID, ensureAdminKey } from '../../src/api/auth.ts';
import { createPool } from '../../src/db/pool.ts';
import { cleanUpLater } from '../support/clean-up.ts';
import { createDatabase } from '../support/postgres.ts';

it('processes that start at once with one admin key all find it there', async () => {
  const db = createPool((await createDatabase()).url, { max: 8 });
  cleanUpLater(() => db.end());
  for (let round = 0; round < 30; round++) {
    await db.query('delete from posthaste.api_keys');
    await Promise.all(Array.from({ length: 8 }, () => ensureAdminKey(db, `phk_admin_${round}`)));
    const { rows } = await db.query('select id, last4 from posthaste.api_keys');
    expect(rows).toEqual([{ id: ADMIN_KEY_ID, last4: `phk_admin_${round}`.slice(-4) }]);
  }
});
