/** When our own network is checked, how often, and that a freeze ends by itself. */
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { DueHealth } from '../../src/db/health.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import { createUs } from '../../src/relay/us.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url);
  await seedTenant(db, 'us');
});
afterAll(() => db.end());

let later = 0; // how far performance.now() has been moved on
let verdict: 'fine' | 'us' | 'unknown';
let checks: (readonly string[])[];
let lines: { level: string; msg: string }[];
let gauge: boolean[];
beforeEach(async () => {
  later = 0;
  verdict = 'us';
  checks = [];
  lines = [];
  gauge = [];
  const real = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => real() + later);
  await db.query(`update posthaste.endpoint_state set last_success_at = null, send_rate = 0`);
});

const guard = () =>
  createUs({
    db,
    log: createLog({ level: 'info', stream: { write: (line: string) => lines.push(JSON.parse(line)) } }),
    shards: () => Array.from({ length: 16 }, (_, shard) => shard),
    check: async (urls) => {
      checks.push(urls);
      return { verdict, tried: urls.length, proxy: null };
    },
    targets: ['https://always.example'],
    onChange: (frozen) => gauge.push(frozen),
  });

const row = (i: number, change: Partial<DueHealth> = {}): DueHealth =>
  ({
    endpoint: `ep_${i}`,
    url: `https://hook.site${i}.example/x`,
    facts: [{ fail: 3 }],
    last_success_at: null,
    now_ms: Date.now(),
    ...change,
  }) as DueHealth;
const rows = (n: number): DueHealth[] => Array.from({ length: n }, (_, i) => row(i));

it('asks our own network only when independent endpoints fail, remembers the answer for ten seconds, and says it once', async () => {
  const isItUs = guard();
  expect(await isItUs(rows(4))).toBe(false);
  expect(
    await isItUs(Array.from({ length: 30 }, (_, i) => row(i, { url: `https://a${i}.one.example/` }))),
  ).toBe(false);
  expect(checks).toEqual([]);
  expect(await isItUs(rows(6))).toBe(true);
  expect(await isItUs(rows(6))).toBe(true);
  expect(checks).toHaveLength(1);
  later = 10_001;
  expect(await isItUs(rows(6))).toBe(true);
  expect(checks).toHaveLength(2);
  expect(gauge).toEqual([true]);
  expect(lines.filter(({ level }) => level === 'error')).toHaveLength(1);
  expect(lines.at(-1)!.msg).toContain('it is us');
});

it('thaws when the network answers, and when nothing fails any more', async () => {
  const isItUs = guard();
  expect(await isItUs(rows(6))).toBe(true);
  verdict = 'fine';
  later = 10_001;
  expect(await isItUs(rows(6))).toBe(false);
  verdict = 'us';
  later = 20_002;
  expect(await isItUs(rows(6))).toBe(true);
  later = 90_000; // a minute without news
  expect(await isItUs([])).toBe(false);
  expect(gauge).toEqual([true, false, true, false]);
});

it('is not misled by endpoints that also succeed, nor by a few among many', async () => {
  const isItUs = guard();
  expect(await isItUs(rows(6).map((each) => ({ ...each, last_success_at: new Date() })))).toBe(false);
  for (let i = 0; i < 20; i++) await seedEndpoint(db, 'us', { url: `https://fine${i}.example/` });
  await db.query('update posthaste.endpoint_state set send_rate = 1, send_rate_at = clock_timestamp()');
  expect(await isItUs(rows(6))).toBe(false);
  expect(checks).toEqual([]);
});

it('compares with endpoints that lately succeeded and are none of the failing, and admits when there is nothing to compare', async () => {
  const fresh = (await seedEndpoint(db, 'us', { url: 'https://lately.example/' })).id;
  const failing = (await seedEndpoint(db, 'us', { url: 'https://hook.site1.example/other' })).id;
  await db.query(
    `update posthaste.endpoint_state set last_success_at = now() - interval '10 minutes' where endpoint = any ($1)`,
    [[fresh, failing]],
  );
  const isItUs = guard();
  verdict = 'unknown';
  expect(await isItUs(rows(6))).toBe(false);
  expect(checks).toEqual([['https://always.example', 'https://lately.example/']]);
  expect(lines.at(-1)!.msg).toContain('POSTHASTE_SELF_CHECK');
});
