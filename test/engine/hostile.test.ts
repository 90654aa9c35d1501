/** Every hostile receiver through the whole engine: one attempt row of the right class each, strangers unharmed. */
import { beforeAll, expect, it } from 'vitest';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { HOSTILE_RECEIVERS } from '../support/hostile/receivers.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
});

it('each gives exactly one attempt of its class within its deadline, all at once, and good ones get theirs', async () => {
  await seedTenant(engine.db, 'hostile');
  const good = await startReceiver();
  await seedEndpoint(engine.db, 'hostile', { url: good.url });
  const receivers = await Promise.all(HOSTILE_RECEIVERS.map((row) => row.receiver()));
  const expected = new Map<string, string>();
  for (const [i, row] of HOSTILE_RECEIVERS.entries()) {
    const { id } = await seedEndpoint(engine.db, 'hostile', {
      url: `http://127.0.0.1:${receivers[i]!.port}/${i}`,
      timeoutMs: 1_000,
      policy: { max_attempts: 1 },
    });
    expected.set(id, row.class);
  }
  await enqueueMany(engine.db, 'hostile', 'a.b', 1);
  const read = async () =>
    (
      await engine.db.query(
        `select a.endpoint, a.class, a.duration_ms, a.error, length(a.response_body) as stored, a.n, d.state
         from posthaste.attempts a join posthaste.deliveries d on d.id = a.delivery where a.tenant = 'hostile'`,
      )
    ).rows;
  const rows = await until(read, (all) => all.length === expected.size + 1);
  const seen = new Map(rows.map((row) => [row.endpoint, row.class]));
  for (const [id, outcome] of expected) expect(seen.get(id)).toBe(outcome);
  for (const row of rows) {
    expect(row).toMatchObject({ n: 1, state: row.class === 'ok' ? 'delivered' : 'dead' });
    expect(row.stored ?? 0).toBeLessThanOrEqual(16 * 1024);
    expect(row.error ?? '').not.toMatch(/127\.0|169\.254/);
  }
  expect(good.requests).toHaveLength(1);
  await enqueueMany(engine.db, 'hostile', 'a.b', 1, 1);
  await good.waitFor(2);
  const slots = async () =>
    (await engine.db.query(`select sum(in_flight)::int as taken from posthaste.endpoint_state`)).rows[0]
      .taken;
  await until(slots, (taken) => taken === 0);
  await Promise.all(receivers.map((receiver) => receiver[Symbol.asyncDispose]()));
  await good.close();
});
