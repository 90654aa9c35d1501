/**
 * What is asked every second reads what is due and nothing else, however much waits for later: held deliveries, sleeping
 * ones, members of groups, endpoints whose health is looked at tomorrow.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { dissolve } from '../../src/db/dispatches.ts';
import { healthDue } from '../../src/db/health.ts';
import { createPool, type Db, type Pool } from '../../src/db/pool.ts';
import * as scan from '../../src/db/scan.ts';
import { reap } from '../../src/db/verbs.ts';
import { looksOf } from '../support/looks.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

const MANY = 5_000;
const FEW = 100;
const SHARDS = Array.from({ length: 16 }, (_, i) => i);
const LANES = ['first', 'retry', 'held', 'bulk'];

let db: Pool;
let pumped: string;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 1 });
  await seedTenant(db, 'a');
  const sleeping = await seedEndpoint(db, 'a', { url: 'https://example.com/' });
  pumped = (await seedEndpoint(db, 'a', { url: 'https://example.com/' })).id;
  for (const endpoint of [sleeping.id, pumped]) await seedWork(db, 'a', endpoint, MANY);
  await db.query(
    `update posthaste.work set state = case when endpoint = $1 then 'held' else 'retrying' end,
       held_deadline = case when endpoint = $1 then deadline end, due_at = now() + interval '1 day', scan_at = now() + interval '1 day',
       delivery = replace(delivery, 'dlv_', 'dlv_0')`, // of long ago
    [pumped],
  );
  await db.query(
    `update posthaste.endpoint_state set mode = 'pump', probe_at = now() + interval '1 day', keep_pump_until = 'infinity' where endpoint = $1`,
    [pumped],
  );
  await db.query(
    `with made as (
       insert into posthaste.endpoints (id, tenant, url, retry_policy, deadline_ms)
       select 'ep_' || g, 'a', url, retry_policy, deadline_ms from posthaste.endpoints, generate_series(1, $2) g where id = $1 returning id)
     insert into posthaste.endpoint_health (endpoint, shard, wake_at) select id, 3, now() + interval '1 day' from made`,
    [pumped, MANY],
  );
  await db.query('vacuum analyze');
}, 60_000);
afterAll(() => db.end());

const EVERY_SECOND: Record<string, (client: Db) => Promise<unknown>> = {
  scanDue: (client) => scan.scanDue(client, SHARDS, 15_000, 500),
  scanLater: (client) => scan.scanLater(client, SHARDS, 15_000, 500),
  scanFinish: (client) => scan.scanFinish(client, SHARDS, 500),
  scanWake: (client) => scan.scanWake(client, SHARDS, 500),
  scanAdopt: (client) => scan.scanAdopt(client, SHARDS, LANES, 500, 30_000),
  scanTests: (client) => scan.scanTests(client, SHARDS, 500, 30_000),
  scanHold: (client) => scan.scanHold(client, SHARDS, 500),
  scanPumps: (client) => scan.scanPumps(client, SHARDS, 500),
  regroup: (client) => scan.regroup(client, SHARDS, 'retry', 'dsp_1', 500, 30_000),
  reap: (client) => reap(client, SHARDS, 15_000, 500),
  dissolve: (client) => dissolve(client, SHARDS, null, 15_000),
};

test.each(Object.entries(EVERY_SECOND))('%s reads nothing that is not due', async (_name, call) => {
  // Twelve times: from the sixth on a connection may go by a plan that it keeps.
  for (let i = 0; i < 12; i++) await call(db);
  for (const table of ['work', 'endpoint_health'])
    expect(await looksOf(db, (client) => call(client), table)).toBeLessThan(FEW);
});

test('the health step reads nothing of endpoints that are not due', async () => {
  for (let i = 0; i < 12; i++) await healthDue(db, SHARDS, 500);
  expect(await looksOf(db, (client) => healthDue(client, SHARDS, 500), 'endpoint_health')).toBeLessThan(FEW);
});

test('the health step counts what came in for a resting endpoint of late, not what it has held for long', async () => {
  await db.query(
    `insert into posthaste.health_inbox (endpoint, shard, fact) select $1, shard, '{"fail": 1}' from posthaste.tenants`,
    [pumped],
  );
  const looks = await looksOf(
    db,
    async (client) => {
      const due = await healthDue(client, SHARDS, 500);
      expect(due.map(({ endpoint, held }) => [endpoint, held])).toEqual([[pumped, 1_000]]);
    },
    'work',
  );
  expect(looks).toBeLessThan(1_000 + FEW); // of which it says "a thousand or more"
});
