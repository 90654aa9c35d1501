import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { prepareEndpoint } from '../src/activities/prepare.ts';
import { loadEndpoints } from '../src/db/load.ts';
import { createPool, type Pool } from '../src/db/pool.ts';
import { formatSecret } from '../src/egress/sign.ts';
import { reseal } from '../src/reseal.ts';
import { parseMasterKeys } from '../src/secrets.ts';
import { createDatabase } from './support/postgres.ts';
import { MASTER_KEYS_TEXT, seedEndpoint, seedTenant } from './support/seed.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 2 });
});
afterAll(() => db.end());

describe('reseal', () => {
  it('moves every value to the newest key, reports the counts, and changes nothing that is sent', async () => {
    await seedTenant(db, 'a');
    const made = await Promise.all([
      seedEndpoint(db, 'a', { url: 'https://example.com/1', headers: { authorization: 'Bearer x' } }),
      seedEndpoint(db, 'a', { url: 'https://example.com/2' }),
    ]);
    const both = parseMasterKeys(`t2:${Buffer.alloc(32, 8).toString('base64')},${MASTER_KEYS_TEXT}`);
    expect(await reseal(db, both, { check: true })).toEqual({
      resealed: 0,
      unreadable: [],
      perKey: { t2: 0, t1: 3 },
    });
    expect(await reseal(db, both)).toEqual({ resealed: 3, unreadable: [], perKey: { t2: 3, t1: 0 } });
    expect(await reseal(db, both)).toEqual({ resealed: 0, unreadable: [], perKey: { t2: 3, t1: 0 } });
    const newOnly = parseMasterKeys(`t2:${Buffer.alloc(32, 8).toString('base64')}`);
    for (const { id, secret } of made) {
      const [row] = await loadEndpoints(db, [id]);
      expect(prepareEndpoint(row!, newOnly).secrets.map(formatSecret)).toEqual([secret]);
    }
    const keyIds = await db.query('select distinct key_id from posthaste.endpoint_secrets');
    expect(keyIds.rows).toEqual([{ key_id: 't2' }]);
  });

  it('names what no loaded key opens', async () => {
    const other = parseMasterKeys(`t9:${Buffer.alloc(32, 9).toString('base64')}`);
    const report = await reseal(db, other);
    expect(report.resealed).toBe(0);
    expect(report.unreadable).toHaveLength(3);
    expect(report.unreadable[0]).toMatchObject({ kind: 'secret', keyId: 't2' });
  });
});
