/** A worker whose wall clock jumps by days while it works: signatures, due times and deadlines must not notice. */
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it } from 'vitest';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';
import { startReady } from './support.ts';

const CLOCK = fileURLToPath(new URL('../support/jumping-clock.mjs', import.meta.url));
const DELIVERIES = 8;

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
});

it('a worker whose clock jumps signs with the right time, keeps the schedule, and ends hanging requests in time', async () => {
  await engine.start(['relay']);
  const worker = await startReady(engine, 'worker', { NODE_OPTIONS: `--import ${CLOCK}` });
  await seedTenant(engine.db, 'clock');
  let release = (): void => {};
  const never = new Promise<void>((resolve) => {
    release = resolve;
  });
  const tries = new Map<string, number>();
  const receiver = await startReceiver({
    respond: ({ path, webhookId }) => {
      const key = `${path} ${webhookId}`;
      tries.set(key, (tries.get(key) ?? 0) + 1);
      return path === '/hangs' ? { until: never } : { status: tries.get(key)! < 3 ? 500 : 200 };
    },
  });
  const policy = { schedule: ['1s', '2s'] };
  const fails = await seedEndpoint(engine.db, 'clock', { url: `${receiver.url}/fails`, policy });
  const hangs = await seedEndpoint(engine.db, 'clock', {
    url: `${receiver.url}/hangs`,
    timeoutMs: 1_000,
    policy: { max_attempts: 1 },
  });
  await enqueueMany(engine.db, 'clock', 'a.b', DELIVERIES);
  await until(
    async () => (await engine.db.query('select count(*) as c from posthaste.deliveries')).rows[0].c as number,
    (count) => count === 2 * DELIVERIES,
  );

  for (const request of receiver.requests)
    expect(Math.abs(Number(request.headers['webhook-timestamp']) * 1_000 - request.at)).toBeLessThan(60_000);
  const { rows } = await engine.db.query(
    `select a.*, (extract(epoch from a.next_due_at - a.started_at) * 1000 - a.duration_ms)::float8 as wait_ms,
       extract(epoch from a.started_at - d.created_at)::float8 as age, d.state
     from posthaste.attempts a join posthaste.deliveries d on d.id = a.delivery order by a.delivery, a.n`,
  );
  for (const row of rows) expect(row.age).toBeLessThan(600);
  const failed = rows.filter((row) => row.endpoint === fails.id);
  expect(failed).toHaveLength(3 * DELIVERIES);
  for (const row of failed.filter(({ n }) => n < 3)) {
    // The listed second or two, up to a tenth more; a real column keeps a duration to a fraction of a millisecond.
    expect(row.wait_ms).toBeGreaterThan(row.n * 1_000 - 10);
    expect(row.wait_ms).toBeLessThan(row.n * 1_100 + 10);
  }
  const hung = rows.filter((row) => row.endpoint === hangs.id);
  expect(hung).toHaveLength(DELIVERIES);
  for (const row of hung) {
    expect(row).toMatchObject({ class: 'deadline', state: 'dead' });
    expect(row.duration_ms).toBeGreaterThan(900);
    expect(row.duration_ms).toBeLessThan(30_000);
  }
  release();
  expect(await worker.terminate()).toBe(0);
  await receiver.close();
}, 120_000);
