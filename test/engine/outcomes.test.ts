/** How deliveries end: dead letters, resends, cancels, subscriptions, failing neighbours. */
import { beforeAll, describe, expect, it } from 'vitest';
import { cancel, resend, resendEvent } from '../../src/db/operators.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
});

interface Final {
  id: string;
  endpoint: string;
  event: string;
  event_at: Date;
  state: string;
  reason: string | null;
  n: number;
  generation: number;
}
const finals = async (tenant: string): Promise<Final[]> =>
  (await engine.db.query('select * from posthaste.deliveries where tenant = $1 order by id', [tenant])).rows;
const ended = (tenant: string, count: number) =>
  until(
    () => finals(tenant),
    (rows) => rows.length === count,
  );
const attempts = async (delivery: string) =>
  (
    await engine.db.query(
      'select n, class, decision, generation from posthaste.attempts where delivery = $1 order by n',
      [delivery],
    )
  ).rows;

describe('a delivery that never succeeds', () => {
  it('is dead at its deadline, not before, and listed as a dead letter', async () => {
    await seedTenant(engine.db, 'dead');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'dead', {
      url: receiver.url,
      policy: { base: '200ms', factor: 2, deadline: '2s' },
    });
    await enqueueMany(engine.db, 'dead', 'a.b', 1);
    const [final] = await ended('dead', 1);
    expect(final).toMatchObject({ state: 'dead', reason: 'deadline' });
    const letter = await engine.db.query(
      `select l.attempts, extract(epoch from l.died_at - d.created_at)::float8 as age from posthaste.dead_letters l join posthaste.deliveries d on d.id = l.delivery where l.delivery = $1`,
      [final!.id],
    );
    expect(letter.rows[0].attempts).toBe(receiver.requests.length);
    expect(letter.rows[0].age).toBeGreaterThanOrEqual(2);
    await receiver.close();
  });

  it('is dead when its attempts are used up', async () => {
    await seedTenant(engine.db, 'tired');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'tired', { url: receiver.url, policy: { schedule: ['10ms', '10ms'] } });
    await enqueueMany(engine.db, 'tired', 'a.b', 1);
    const [final] = await ended('tired', 1);
    expect(final).toMatchObject({ state: 'dead', reason: 'max_attempts', n: 3 });
    expect(receiver.requests).toHaveLength(3);
    await receiver.close();
  });

  it('can be sent again: numbers go on, the generation grows, the letter goes away', async () => {
    await seedTenant(engine.db, 'again');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'again', { url: receiver.url, policy: { schedule: ['10ms'] } });
    await enqueueMany(engine.db, 'again', 'a.b', 1);
    const [dead] = await ended('again', 1);
    receiver.respond(() => ({ status: 200 }));
    expect(await resend(engine.db, 'again', dead!.id)).toMatchObject({ state: 'ready', generation: 2, n: 2 });
    await receiver.waitFor(3);
    const [final] = await until(
      () => finals('again'),
      (rows) => rows[0]?.state === 'delivered',
    );
    expect(final).toMatchObject({ n: 3, generation: 2 });
    expect(new Set(receiver.requests.map((r) => r.webhookId)).size).toBe(1);
    expect(new Set(receiver.requests.map((r) => r.body.toString())).size).toBe(1);
    const letters = await engine.db.query('select * from posthaste.dead_letters where delivery = $1', [
      dead!.id,
    ]);
    expect(letters.rows).toEqual([]);
    await receiver.close();
  });
});

describe('a manual resend of a waiting delivery', () => {
  it('tries now, and its failure leaves the schedule as it was', async () => {
    await seedTenant(engine.db, 'manual');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'manual', { url: receiver.url, policy: { schedule: ['1h', '1h'] } });
    await enqueueMany(engine.db, 'manual', 'a.b', 1);
    const read = async () =>
      (
        await engine.db.query(
          `select delivery, state, n, step, burned, due_at from posthaste.work where tenant = 'manual'`,
        )
      ).rows[0];
    const before = await until(read, (row) => row?.state === 'retrying');
    await resend(engine.db, 'manual', before.delivery);
    const after = await until(read, (row) => row?.n === 2 && row.state === 'retrying');
    expect(after).toMatchObject({ step: before.step, burned: before.burned });
    expect(after.due_at).toEqual(before.due_at);
    receiver.respond(() => ({ status: 204 }));
    await resend(engine.db, 'manual', before.delivery);
    expect(await ended('manual', 1)).toMatchObject([{ state: 'delivered', n: 3 }]);
    await receiver.close();
  });
});

describe('cancel', () => {
  it('ends a waiting delivery at once and one under way with its result', async () => {
    await seedTenant(engine.db, 'cancel');
    let answer: (() => void) | undefined;
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const receiver = await startReceiver({ respond: () => ({ status: 500, until: held }) });
    await seedEndpoint(engine.db, 'cancel', { url: receiver.url });
    await enqueueMany(engine.db, 'cancel', 'a.b', 1);
    await receiver.waitFor(1);
    const [work] = (await engine.db.query(`select delivery from posthaste.work where tenant = 'cancel'`))
      .rows;
    expect(await cancel(engine.db, 'cancel', work.delivery)).toMatchObject({ state: 'sending' });
    answer!();
    expect(await ended('cancel', 1)).toMatchObject([{ state: 'cancelled', reason: 'requested', n: 1 }]);
    await receiver.close();
  });
});

describe('subscriptions', () => {
  it('send each type to those who asked for it, and count events nobody asked for', async () => {
    await seedTenant(engine.db, 'types');
    const receiver = await startReceiver();
    await seedEndpoint(engine.db, 'types', { url: `${receiver.url}/all` });
    await seedEndpoint(engine.db, 'types', { url: `${receiver.url}/two`, types: ['a', 'b'] });
    for (const type of ['a', 'b', 'c']) await enqueueMany(engine.db, 'types', type, 1);
    await ended('types', 5);
    const got = (path: string) =>
      receiver.requests
        .filter((r) => r.path === path)
        .map((r) => JSON.parse(r.body.toString()).type)
        .sort();
    expect(got('/all')).toEqual(['a', 'b', 'c']);
    expect(got('/two')).toEqual(['a', 'b']);
    const fanouts = await engine.db.query(
      `select sequence, deliveries from posthaste.event_fanouts where tenant = 'types' order by sequence`,
    );
    expect(fanouts.rows).toEqual([
      { sequence: 1, deliveries: 2 },
      { sequence: 2, deliveries: 2 },
      { sequence: 3, deliveries: 1 },
    ]);
    await receiver.close();
  });

  it('can be made up for: resending an event reaches an endpoint that did not exist then, with the same bytes', async () => {
    await seedTenant(engine.db, 'late');
    const receiver = await startReceiver();
    await seedEndpoint(engine.db, 'late', { url: `${receiver.url}/first` });
    const [event] = await enqueueMany(engine.db, 'late', 'a.b', 1);
    const [first] = await ended('late', 1);
    await seedEndpoint(engine.db, 'late', { url: `${receiver.url}/second` });
    await resendEvent(engine.db, 'late', event!, first!.event_at);
    await until(
      () => finals('late'),
      (rows) => rows.length === 2 && rows.every((row) => row.state === 'delivered'),
    );
    expect(receiver.requests.map((r) => r.path).sort()).toEqual(['/first', '/first', '/second']);
    expect(new Set(receiver.requests.map((r) => r.body.toString())).size).toBe(1);
    await receiver.close();
  });
});

describe('a failing endpoint', () => {
  it('does not delay its neighbours and is logged attempt by attempt', async () => {
    await seedTenant(engine.db, 'three');
    const good = await startReceiver();
    const bad = await startReceiver({
      respond: () => ({ status: 503, body: 'no\0t now', headers: { 'x-why': 'maintenance' } }),
    });
    await seedEndpoint(engine.db, 'three', { url: `${good.url}/1` });
    await seedEndpoint(engine.db, 'three', { url: `${bad.url}/2`, policy: { schedule: ['30ms', '30ms'] } });
    await seedEndpoint(engine.db, 'three', { url: `${good.url}/3` });
    await enqueueMany(engine.db, 'three', 'a.b', 6);
    const rows = await ended('three', 18);
    expect(rows.filter((row) => row.state === 'delivered')).toHaveLength(12);
    const dead = rows.filter((row) => row.state === 'dead');
    expect(dead).toHaveLength(6);
    for (const row of dead) {
      expect((await attempts(row.id)).map((a) => `${a.n} ${a.class} ${a.decision}`)).toEqual([
        '1 http_503 retrying',
        '2 http_503 retrying',
        '3 http_503 dead',
      ]);
    }
    const log = await engine.db.query(`select * from posthaste.attempts where delivery = $1 and n = 1`, [
      dead[0]!.id,
    ]);
    expect(log.rows[0]).toMatchObject({
      tenant: 'three',
      event_type: 'a.b',
      status: 503,
      request_url: `${bad.url}/2`,
      response_body: Buffer.from('no\0t now'),
    });
    expect(JSON.parse(log.rows[0].response_headers)).toContainEqual(['x-why', 'maintenance']);
    const sent = JSON.parse(log.rows[0].request_headers).map(([name]: [string]) => name);
    expect(sent).toEqual([
      'host',
      'connection',
      'user-agent',
      'content-type',
      'accept-encoding',
      'webhook-id',
      'webhook-timestamp',
      'webhook-signature',
      'content-length',
    ]);
    expect(good.requests).toHaveLength(12);
    await Promise.all([good.close(), bad.close()]);
  });

  it('is disabled by 410, and what it still had coming is cancelled', async () => {
    await seedTenant(engine.db, 'gone');
    const receiver = await startReceiver({ respond: () => ({ status: 410 }) });
    const { id } = await seedEndpoint(engine.db, 'gone', { url: receiver.url });
    await enqueueMany(engine.db, 'gone', 'a.b', 1);
    expect(await ended('gone', 1)).toMatchObject([{ state: 'dead', reason: 'gone' }]);
    const read = async () =>
      (await engine.db.query('select state, disabled_reason from posthaste.endpoints where id = $1', [id]))
        .rows[0];
    expect(await until(read, (row) => row.state === 'disabled')).toMatchObject({ disabled_reason: 'gone' });
    await receiver.close();
  });
});

describe('the in-flight cap', () => {
  it('holds at the receiver, and a slow endpoint still gets everything', async () => {
    await seedTenant(engine.db, 'cap');
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 100 }) });
    await seedEndpoint(engine.db, 'cap', { url: receiver.url, cap: 3 });
    await enqueueMany(engine.db, 'cap', 'a.b', 60);
    await ended('cap', 60);
    expect(receiver.highWater()).toBeLessThanOrEqual(3);
    expect(receiver.requests).toHaveLength(60);
    const slots = await engine.db.query(
      `select in_flight from posthaste.endpoint_state where tenant = 'cap'`,
    );
    expect(slots.rows[0].in_flight).toBe(0);
    await receiver.close();
  });
});

describe('an endpoint that hangs', () => {
  it('does not keep its group: who waits behind it leaves, and others are fanned out meanwhile', async () => {
    await seedTenant(engine.db, 'hangs');
    await seedTenant(engine.db, 'brisk');
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const hanging = await startReceiver({ respond: () => ({ status: 200, until: held }) });
    const brisk = await startReceiver();
    await seedEndpoint(engine.db, 'hangs', { url: hanging.url, cap: 2 });
    await seedEndpoint(engine.db, 'brisk', { url: brisk.url });
    await enqueueMany(engine.db, 'hangs', 'a.b', 40);
    await hanging.waitFor(2);
    const parked = async () =>
      (
        await engine.db.query(
          `select count(*) as c from posthaste.work where tenant = 'hangs' and state = 'held'`,
        )
      ).rows[0].c as number;
    await until(parked, (count) => count >= 37);
    await enqueueMany(engine.db, 'brisk', 'a.b', 5);
    await brisk.waitFor(5);
    release();
    await ended('hangs', 40);
    expect(hanging.requests).toHaveLength(40);
    expect(hanging.highWater()).toBeLessThanOrEqual(2);
    await Promise.all([hanging.close(), brisk.close()]);
  });
});
