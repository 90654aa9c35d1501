/** What receivers ask for, and what people do meanwhile: Retry-After, manual attempts, cancels during a request. */
import { beforeAll, describe, expect, it } from 'vitest';
import { loadDeliveries } from '../../src/db/load.ts';
import { resend } from '../../src/db/operators.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

let engine: TestEngine;
let url: string;
beforeAll(async () => {
  engine = await prepareEngine();
  url = (await engine.start(['api', 'relay', 'worker'])).url!;
});

// biome-ignore lint/suspicious/noExplicitAny: answers are asserted, not typed
const call = async (method: string, path: string): Promise<any> => {
  const response = await fetch(url + path, { method, headers: { authorization: `Bearer ${ADMIN_KEY}` } });
  return response.json();
};
const log = async (tenant: string) =>
  (
    await engine.db.query(
      'select *, (extract(epoch from started_at) * 1000 + duration_ms)::float8 as ended_ms from posthaste.attempts where tenant = $1 order by endpoint, n',
      [tenant],
    )
  ).rows;
const waiting = async (tenant: string) => {
  const { rows } = await engine.db.query('select delivery from posthaste.work where tenant = $1', [tenant]);
  return loadDeliveries(
    engine.db,
    rows.map((row) => row.delivery),
  );
};
const ended = (tenant: string) =>
  until(
    async () =>
      (await engine.db.query('select * from posthaste.deliveries where tenant = $1', [tenant])).rows[0],
    (row) => row !== undefined,
  );

describe('Retry-After', () => {
  // Near 2^31 ms, beyond it, beyond 2^53, epochs in all units, dates, and what only looks like a number.
  const day = ['2147483', '2147484', '4294967295', '9007199254740993', '1796054400', '1796054400000000'];
  const alsoDay = ['9'.repeat(400), 'Fri, 31 Dec 9999 23:59:59 GMT'];
  const ignored = [
    '-5',
    '-1e3',
    '1e3',
    'NaN',
    'Infinity',
    '0x10',
    '120, 240',
    '2026-11-30T12:02:00Z',
    '',
    '٣',
  ];
  const atOnce = ['0', 'Sun, 06 Nov 1994 08:49:37 GMT'];
  const values = [...day, ...alsoDay, ...ignored, ...atOnce];

  it('of any size and form is harmless: a day at most, or the own schedule, and others go on', async () => {
    await seedTenant(engine.db, 'hostile');
    const receiver = await startReceiver({
      respond: ({ path }) => ({
        status: [429, 503, 500, 400, 302][Number(path.slice(1)) % 5]!,
        headers: { 'retry-after': Buffer.from(values[Number(path.slice(1))]!).toString('latin1') },
      }),
    });
    const policy = { base: '1h', cap: '1h', factor: 1, jitter: 'none' };
    const ids: string[] = [];
    for (const i of values.keys())
      ids.push((await seedEndpoint(engine.db, 'hostile', { url: `${receiver.url}/${i}`, policy })).id);
    await enqueueMany(engine.db, 'hostile', 'a.b', 1);
    const rows = await until(
      () => log('hostile'),
      (all) => all.length === values.length,
    );
    for (const [i, value] of values.entries()) {
      const row = rows.find((each) => each.endpoint === ids[i])!;
      const wait = row.next_due_at.getTime() - row.ended_ms;
      const asksForADay = i < day.length + alsoDay.length;
      const said = `${value}: ${row.rule} ${wait}`;
      expect(row.retry_after_s, said).toBe(asksForADay ? 86_400 : atOnce.includes(value) ? 0 : null);
      expect(row.rule, said).toMatch(asksForADay ? /^retry_after$/ : /^(schedule|slower)$/);
      expect(wait, said).toBeGreaterThan(asksForADay ? DAY - 1_000 : HOUR - 1_000);
      expect(wait, said).toBeLessThan(asksForADay ? DAY + 61_000 : HOUR + 1_000);
    }
    expect(receiver.requests).toHaveLength(values.length);
    await seedEndpoint(engine.db, 'hostile', { url: `${receiver.url}/good`, types: ['c.d'] });
    receiver.respond(() => ({ status: 200 }));
    await enqueueMany(engine.db, 'hostile', 'c.d', 1);
    await receiver.waitForRequest(({ path }) => path === '/good');
    await receiver.close();
  });

  it('is waited for on any failing answer: in seconds, or as a date', async () => {
    await seedTenant(engine.db, 'asks');
    const seconds = await startReceiver({
      respond: (_request, n) =>
        n === 0 ? { status: 404, headers: { 'retry-after': '2' } } : { status: 200 },
    });
    const date = await startReceiver({
      respond: (_request, n) =>
        n === 0
          ? { status: 503, headers: { 'retry-after': new Date(Date.now() + 3_000).toUTCString() } }
          : { status: 200 },
    });
    for (const receiver of [seconds, date])
      await seedEndpoint(engine.db, 'asks', { url: receiver.url, policy: { schedule: ['10ms'] } });
    await enqueueMany(engine.db, 'asks', 'a.b', 1);
    const [first, second] = await seconds.waitFor(2);
    expect(second!.at - first!.at).toBeGreaterThanOrEqual(2_000);
    const [early, late] = await date.waitFor(2);
    expect(late!.at).toBeGreaterThanOrEqual(Math.floor((early!.at + 3_000) / 1_000) * 1_000 - 100);
    await Promise.all([seconds.close(), date.close()]);
  });

  it('beyond the deadline makes the delivery dead at the deadline, without a last try', async () => {
    await seedTenant(engine.db, 'beyond');
    const receiver = await startReceiver({
      respond: () => ({ status: 503, headers: { 'retry-after': '3600' } }),
    });
    await seedEndpoint(engine.db, 'beyond', {
      url: receiver.url,
      policy: { schedule: ['10ms', '10ms'], deadline: '2s' },
    });
    await enqueueMany(engine.db, 'beyond', 'a.b', 1);
    const row = await ended('beyond');
    expect(row).toMatchObject({ state: 'dead', reason: 'deadline', n: 1 });
    expect(row.finished_at.getTime() - row.created_at.getTime()).toBeGreaterThanOrEqual(2_000);
    expect(receiver.requests).toHaveLength(1);
    const { data } = await call('GET', `/v1/tenants/beyond/deliveries/${row.id}/attempts`);
    expect(data).toMatchObject([
      { decision: 'retrying', rule: 'deadline', retry_after_seconds: 3_600, next_attempt_at: null },
    ]);
    await receiver.close();
  });
});

describe('manual attempts', () => {
  it('two in a row leave the schedule as it was; one whose receiver asks for more time moves it', async () => {
    await seedTenant(engine.db, 'manual');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'manual', { url: receiver.url, policy: { schedule: ['1h', '1h'] } });
    await enqueueMany(engine.db, 'manual', 'a.b', 1);
    const failed = (n: number) =>
      until(
        async () => (await waiting('manual'))[0]!,
        (row) => row?.n === n && row.state === 'retrying',
      );
    const before = await failed(1);
    for (const n of [2, 3]) {
      await resend(engine.db, 'manual', before.delivery);
      const row = await failed(n);
      expect(row).toMatchObject({ step: 1, burned: 1, due_at: before.due_at, resume_at: null });
    }
    receiver.respond(() => ({ status: 429, headers: { 'retry-after': '7200' } }));
    await resend(engine.db, 'manual', before.delivery);
    const moved = await failed(4);
    expect(moved).toMatchObject({ step: 1, burned: 1 });
    expect(moved.due_at.getTime()).toBeGreaterThan(before.due_at.getTime() + HOUR / 2);
    expect((await log('manual')).map((row) => row.rule)).toEqual([
      'schedule',
      'manual',
      'manual',
      'retry_after',
    ]);
    await receiver.close();
  });

  it('bring a dead letter back to life with its whole schedule: it is tried again when that fails', async () => {
    await seedTenant(engine.db, 'revived');
    const receiver = await startReceiver({ respond: (_request, n) => ({ status: n < 3 ? 500 : 200 }) });
    await seedEndpoint(engine.db, 'revived', { url: receiver.url, policy: { schedule: ['10ms'] } });
    await enqueueMany(engine.db, 'revived', 'a.b', 1);
    const dead = await ended('revived');
    expect(dead).toMatchObject({ state: 'dead', reason: 'max_attempts', n: 2 });
    await resend(engine.db, 'revived', dead.id);
    const row = await until(
      async () => await ended('revived'),
      ({ state }) => state === 'delivered',
    );
    expect(row).toMatchObject({ n: 4, generation: 2 });
    expect((await log('revived')).map((each) => `${each.n} ${each.rule}`)).toEqual([
      '1 schedule',
      '2 max_attempts',
      '3 schedule',
      '4 delivered',
    ]);
    expect(new Set(receiver.requests.map((request) => request.body.toString())).size).toBe(1);
    await receiver.close();
  });

  it('clicked twice at once make one attempt', async () => {
    await seedTenant(engine.db, 'clicks');
    let answer = (): void => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const receiver = await startReceiver({
      respond: (_request, n) => (n === 0 ? { status: 500 } : { status: 500, until: held }),
    });
    await seedEndpoint(engine.db, 'clicks', { url: receiver.url, policy: { schedule: ['1h'] } });
    await enqueueMany(engine.db, 'clicks', 'a.b', 1);
    const [before] = await until(
      () => waiting('clicks'),
      (rows) => rows[0]?.state === 'retrying',
    );
    const path = `/v1/tenants/clicks/deliveries/${before!.delivery}/resend`;
    await Promise.all(Array.from({ length: 10 }, () => call('POST', path)));
    await receiver.waitFor(2);
    await Promise.all(Array.from({ length: 10 }, () => call('POST', path))); // while it is under way: nothing to do
    answer();
    const [row] = await until(
      () => waiting('clicks'),
      (rows) => rows[0]?.state === 'retrying',
    );
    expect(row).toMatchObject({ n: 2, due_at: before!.due_at });
    expect(receiver.requests).toHaveLength(2);
    await receiver.close();
  });
});

describe('a cancel while the request is under way', () => {
  it.each([
    [200, 'delivered', null, 'delivered'],
    [500, 'cancelled', 'requested', 'requested'],
    [410, 'cancelled', 'requested', 'requested'],
  ])('takes the answer into account: %i makes it %s', async (status, state, reason, rule) => {
    const tenant = `cancel${status}`;
    await seedTenant(engine.db, tenant);
    let answer = (): void => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const receiver = await startReceiver({ respond: () => ({ status, until: held }) });
    await seedEndpoint(engine.db, tenant, { url: receiver.url });
    await enqueueMany(engine.db, tenant, 'a.b', 1);
    await receiver.waitFor(1);
    const [row] = await waiting(tenant);
    const path = `/v1/tenants/${tenant}/deliveries/${row!.delivery}`;
    expect(await call('POST', `${path}/cancel`)).toMatchObject({ state: 'sending' });
    expect(await call('GET', path)).toMatchObject({
      state: 'sending',
      cancel_requested: true,
      outlook: expect.stringMatching(/^Cancelled: /),
    });
    answer();
    expect(await ended(tenant)).toMatchObject({ state, reason, n: 1 });
    expect((await call('GET', `${path}/attempts`)).data).toMatchObject([
      { decision: state, rule, next_attempt_at: null, response: { status } },
    ]);
    expect(receiver.requests).toHaveLength(1);
    await receiver.close();
  });
});
