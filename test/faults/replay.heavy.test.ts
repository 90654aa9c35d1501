/** A recovery of 250 messages while the whole process is killed, twice. */
import { beforeAll, describe, expect, it } from 'vitest';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';
import { startReady } from './support.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
});

const one = async (sql: string) => (await engine.db.query(sql)).rows[0];
const ended = (state: string) => async () =>
  (await one(`select count(*)::int as c from posthaste.deliveries where state = '${state}'`)).c;

describe('a replay', () => {
  it('of 250 messages that failed three times each sends each once more, though its process is killed twice', async () => {
    const receiver = await startReceiver({ respond: () => ({ status: 400 }) });
    await seedTenant(engine.db, 'outage');
    const { id } = await seedEndpoint(engine.db, 'outage', {
      url: receiver.url,
      timeoutMs: 1_000,
      policy: { schedule: ['10ms', '20ms'] },
    });
    await engine.db.query(
      `select count(posthaste.enqueue('outage', 'a.b', json_build_object('n', g))) from generate_series(1, 250) g`,
    );
    let process = await startReady(engine, 'all');
    await until(ended('dead'), (count) => count === 250, 120_000);
    expect(receiver.requests).toHaveLength(750);

    receiver.respond(() => ({ status: 200, delayMs: 40 }));
    const since = new Date(Date.now() - 3_600_000).toISOString();
    const asked = await fetch(`${process.url}/v1/tenants/outage/endpoints/${id}/recover`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({ since, rate: 25 }),
    });
    expect(asked.status).toBe(202);
    for (const after of [40, 120]) {
      await receiver.waitFor(750 + after, 120_000);
      await process.kill();
      expect((await one('select state from posthaste.replays')).state).toBe('running');
      process = await startReady(engine, 'all');
    }
    await until(ended('delivered'), (count) => count === 250, 240_000);
    await until(
      () => one('select state, moved, skipped, total from posthaste.replays'),
      (row) => row.state === 'done',
      120_000,
    );
    expect(await one('select state, moved, skipped, total from posthaste.replays')).toEqual({
      state: 'done',
      moved: 250,
      skipped: 0,
      total: 250,
    });
    const log = await one(
      `select count(*) filter (where class = 'ok')::int as ok, count(*) filter (where class = 'worker_lost')::int as lost,
         count(*)::int as attempts from posthaste.attempts where generation = 2`,
    );
    expect(log.ok).toBe(250);
    expect(log.attempts).toBe(250 + log.lost);
    const again = receiver.requests.slice(750);
    expect(new Set(again.map((request) => request.webhookId)).size).toBe(250);
    expect(again.length).toBeLessThanOrEqual(log.attempts); // each repeat has its unknown attempt
    const { rows } = await engine.db.query(
      `select distinct d.generation, d.n = (select count(*) from posthaste.attempts a where a.delivery = d.id) as whole from posthaste.deliveries d`,
    );
    expect(rows).toEqual([{ generation: 2, whole: true }]);
    console.log(`250 recovered through two kills: ${again.length} requests, ${log.lost} unknown attempts`);
    expect(await process.terminate()).toBe(0);
    await receiver.close();
  }, 600_000);
});
