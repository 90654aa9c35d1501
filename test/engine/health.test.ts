/** Endpoints that fail, rest, are paused or crowded, through the real engine: what the receiver sees and what rows say. */
import { beforeAll, describe, expect, it } from 'vitest';
import { moveEndpoint } from '../../src/db/endpoint-states.ts';
import { getEndpointHealth, tellHealth } from '../../src/db/health.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
});

const health = (endpoint: string) => getEndpointHealth(engine.db, endpoint);
const count = async (sql: string, tenant: string): Promise<number> =>
  (await engine.db.query(`select count(*)::int as c from ${sql} and tenant = $1`, [tenant])).rows[0].c;
const delivered = (tenant: string) => count(`posthaste.deliveries where state = 'delivered'`, tenant);
const held = (tenant: string) => count(`posthaste.work where state = 'held'`, tenant);

describe('an endpoint whose every request fails', () => {
  it('is left alone after twenty failures; the rest is held, probed for, and delivered when it is back', async () => {
    await seedTenant(engine.db, 'ill');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    const { id } = await seedEndpoint(engine.db, 'ill', {
      url: receiver.url,
      cap: 4,
      policy: { schedule: ['50ms', '50ms', '50ms'] },
    });
    await enqueueMany(engine.db, 'ill', 'a.b', 40);
    await until(
      () => health(id),
      (row) => row?.health === 'open' && row.in_flight === 0,
    );
    await until(
      () => held('ill'),
      (rows) => rows >= 15,
    );
    // Twenty, what was under way then, and no more.
    expect(receiver.requests.length).toBeLessThanOrEqual(24);
    expect(await health(id)).toMatchObject({ mode: 'pump', probe_at: expect.any(Date) });
    receiver.respond(() => ({ status: 200 }));
    // An edit probes at once; then comes the slow start.
    await tellHealth(engine.db, id, 'edit');
    await until(
      () => delivered('ill'),
      (rows) => rows >= 3,
    );
    const row = await health(id);
    expect(row).toMatchObject({ health: 'recovering', mode: 'pump' });
    expect(row!.rate).toBeLessThan(5);
    expect(receiver.highWater()).toBeLessThanOrEqual(4);
    await receiver.close();
  });
});

describe('a paused endpoint', () => {
  it('gets nothing while deliveries wait as held, and everything after resume', async () => {
    await seedTenant(engine.db, 'rests');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'rests', { url: receiver.url });
    expect(await moveEndpoint(engine.db, 'rests', id, 'pause')).toBe('paused');
    await enqueueMany(engine.db, 'rests', 'a.b', 30);
    await until(
      () => held('rests'),
      (rows) => rows === 30,
    );
    expect(receiver.requests).toHaveLength(0);
    expect(await moveEndpoint(engine.db, 'rests', id, 'resume')).toBe('active');
    await until(
      () => delivered('rests'),
      (rows) => rows === 30,
    );
    await until(
      () => health(id),
      (row) => row?.mode === 'shared' && row.health === 'closed',
    );
    await enqueueMany(engine.db, 'rests', 'a.b', 1);
    await receiver.waitFor(31);
    await receiver.close();
  });
});

describe('a receiver that says 429 with Retry-After', () => {
  it('is left in peace for as long as it asked, with all its deliveries', async () => {
    await seedTenant(engine.db, 'busy');
    const receiver = await startReceiver({
      respond: (_request, n) =>
        n === 0 ? { status: 429, headers: { 'retry-after': '3' } } : { status: 200 },
    });
    await seedEndpoint(engine.db, 'busy', {
      url: receiver.url,
      cap: 1,
      policy: { schedule: ['50ms', '50ms', '50ms'] },
    });
    await enqueueMany(engine.db, 'busy', 'a.b', 5);
    await receiver.waitFor(6);
    const [first, second] = receiver.requests;
    expect(second!.at - first!.at).toBeGreaterThanOrEqual(3_000);
    await receiver.close();
  });
});

describe('a rate limit', () => {
  it('holds at the receiver, over any second, and everything arrives', async () => {
    await seedTenant(engine.db, 'paced');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'paced', { url: receiver.url });
    await engine.db.query('update posthaste.endpoint_state set rate_limit = 20 where endpoint = $1', [id]);
    await enqueueMany(engine.db, 'paced', 'a.b', 100);
    await until(
      () => delivered('paced'),
      (rows) => rows === 100,
    );
    const times = receiver.requests.map((r) => r.at).sort((a, b) => a - b);
    // A burst of a second's worth, and then the rate: never more than 2 x 20 in a second, 20 per second on average.
    for (const [i, from] of times.entries())
      expect(times.slice(i).filter((at) => at < from + 1_000).length).toBeLessThanOrEqual(42);
    expect(times.at(-1)! - times[0]!).toBeGreaterThanOrEqual(((100 - 22) / 20) * 1_000 - 500);
    await receiver.close();
  });
});

describe('disabling an endpoint', () => {
  it('ends what was queued before, also when it is enabled again at once', async () => {
    await seedTenant(engine.db, 'stops');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'stops', { url: receiver.url });
    await moveEndpoint(engine.db, 'stops', id, 'pause');
    await enqueueMany(engine.db, 'stops', 'a.b', 50);
    await until(
      () => held('stops'),
      (rows) => rows === 50,
    );
    await moveEndpoint(engine.db, 'stops', id, 'disable', 'operator');
    await moveEndpoint(engine.db, 'stops', id, 'enable');
    await engine.db.query(`update posthaste.work set scan_at = now() where tenant = 'stops'`);
    await until(
      () => count(`posthaste.deliveries where state = 'cancelled' and reason = 'endpoint_disabled'`, 'stops'),
      (rows) => rows === 50,
    );
    await enqueueMany(engine.db, 'stops', 'a.b', 1);
    await receiver.waitFor(1);
    expect(receiver.requests).toHaveLength(1);
    await receiver.close();
  });
});
