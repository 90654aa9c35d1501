/** Statistics of an endpoint: right from rows, and never more than a bounded look at them. */
import { describe, expect, test } from 'vitest';
import { successRate } from '../../src/api/endpoint-stats.ts';
import { STATS_LIMIT } from '../../src/db/stats.ts';
import { seedEndpoint, seedWork } from '../support/seed.ts';
import { rig } from './support.ts';

const api = rig();

async function endpoint() {
  const tenant = await api.tenant();
  const { id } = await seedEndpoint(api.db, tenant, { url: 'https://example.com/' });
  const path = `/v1/tenants/${tenant}/endpoints/${id}/stats`;
  /** Attempts that began so many minutes ago, a millisecond apart. */
  const attempts = (count: number, ago: number, outcome: string, ms: number | null) =>
    api.db.query(
      `insert into posthaste.attempts (id, delivery, n, started_at, tenant, endpoint, event, event_type, generation, duration_ms, class,
         request_url, request_headers, request_bytes, decision)
       select 'att_' || g, 'dlv_' || gen_random_uuid(), 1, now() - $3 * interval '1 minute' + g * interval '1 millisecond', $1, $2, 'e', 'a.b', 1,
         $5::real * g / $6, $4, '', '[]', 0, 'retrying' from generate_series(1, $6::int) g`,
      [tenant, id, ago, outcome, ms, count],
    );
  return {
    tenant,
    id,
    path,
    attempts,
    get: async (query = '') => (await api.call('GET', path + query)).json,
  };
}

describe('statistics of an endpoint', () => {
  test('count attempts by class, with rate and durations, and what waits', async () => {
    const { tenant, id, attempts, get } = await endpoint();
    await attempts(90, 60, 'ok', 90);
    await attempts(10, 30, 'http_5xx', 1_000);
    await attempts(5, 20, 'worker_lost', null);
    await attempts(7, 60 * 25, 'deadline', 15_000); // yesterday
    const work = await seedWork(api.db, tenant, id, 4);
    await api.db.query(
      `update posthaste.work set state = 'held', held_deadline = deadline where delivery = any ($1)`,
      [work.slice(0, 3)],
    );
    await api.db.query(
      `update posthaste.endpoint_state set last_success_at = now() - interval '1 hour' where endpoint = $1`,
      [id],
    );
    await api.db.query(
      `insert into posthaste.dead_letters (delivery, tenant, endpoint, event, event_at, event_type, generation, reason, attempts, died_at)
       select 'dlv_' || g, $1, $2, 'e', now(), 'a.b', 1, 'deadline', 3, now() - g * interval '1 day' from generate_series(0, 3) g`,
      [tenant, id],
    );
    const stats = await get();
    expect(stats).toMatchObject({
      attempts: 105,
      complete: true,
      by_class: { ok: 90, http_5xx: 10, worker_lost: 5 },
      success_rate: 0.9,
      duration_ms: { p50: 50, p95: 500 },
      waiting: { ready: 1, sending: 0, retrying: 0, held: 3 },
      dead_letters: 1,
    });
    expect(stats.seconds_since_success).toBeCloseTo(3_600, -2);
    expect(Date.parse(stats.waiting.oldest_at)).toBeGreaterThan(Date.now() - 60_000);
    const week = await get(`?since=${new Date(Date.now() - 7 * 86_400_000).toISOString()}`);
    expect(week).toMatchObject({ attempts: 112, by_class: { deadline: 7 }, dead_letters: 4 });
  });

  test('say so when they reach back less far than asked', async () => {
    const { attempts, get } = await endpoint();
    await attempts(STATS_LIMIT, 60, 'ok', 10);
    await attempts(10, 90, 'http_5xx', 10);
    const stats = await get();
    expect(stats).toMatchObject({
      attempts: STATS_LIMIT,
      complete: false,
      by_class: { ok: STATS_LIMIT },
      success_rate: 1,
    });
    expect(Date.parse(stats.since)).toBeGreaterThan(Date.now() - 61 * 60_000);
  });

  test('of an endpoint that was never sent to are empty, of an unknown one not found, of too long a range refused', async () => {
    const { tenant, path, get } = await endpoint();
    expect(await get()).toMatchObject({
      attempts: 0,
      complete: true,
      by_class: {},
      success_rate: null,
      duration_ms: { p50: null, p95: null },
      last_success_at: null,
      seconds_since_success: null,
      waiting: { held: 0, oldest_at: null },
      dead_letters: 0,
    });
    const other = await api.tenant();
    expect((await api.call('GET', path.replace(`/${tenant}/`, `/${other}/`))).json.code).toBe(
      'endpoint_not_found',
    );
    for (const since of ['2020-01-01T00:00:00Z', '9000-01-01T00:00:00Z', 'yesterday']) {
      expect((await api.call('GET', `${path}?since=${since}`)).json).toMatchObject({
        code: 'invalid_parameters',
        errors: [{ parameter: 'since' }],
      });
    }
  });

  test('count faults of ours neither as success nor as failure', () => {
    expect(successRate({ ok: 1, worker_lost: 9, local: 5 })).toBe(1);
    expect(successRate({ worker_lost: 9 })).toBeNull();
    expect(successRate({ ok: 1, http_4xx: 1, deadline: 2 })).toBe(0.25);
  });
});
