/** Replays through the whole engine: asked for over HTTP, paged by workflows, delivered to receivers. */
import { Webhook } from 'standardwebhooks';
import { beforeAll, describe, expect, it } from 'vitest';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let url: string;
beforeAll(async () => {
  engine = await prepareEngine();
  url = (await engine.start(['api', 'relay', 'worker'])).url!;
});

// biome-ignore lint/suspicious/noExplicitAny: answers are asserted, not typed
async function call(method: string, path: string, body?: unknown): Promise<{ status: number; json: any }> {
  const response = await fetch(`${url}/v1/tenants/${path}`, {
    method,
    headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, json: await response.json() };
}

const ended = async (tenant: string, state: string) =>
  (
    await engine.db.query(
      'select count(*)::int as c from posthaste.deliveries where tenant = $1 and state = $2',
      [tenant, state],
    )
  ).rows[0].c;
const replayEnds = (tenant: string, id: string) =>
  until(
    async () => (await call('GET', `${tenant}/replays/${id}`)).json,
    (json) => json.state !== 'running',
    60_000,
  );
const anHourAgo = () => new Date(Date.now() - 3_600_000).toISOString();

describe('recover', () => {
  it('of 250 messages that failed three times each sends each of them exactly once more, byte for byte', async () => {
    await seedTenant(engine.db, 'outage');
    // Refusals: a receiver that fails twenty times in a row would be left alone.
    const receiver = await startReceiver({ respond: () => ({ status: 400 }) });
    const { id, secret } = await seedEndpoint(engine.db, 'outage', {
      url: receiver.url,
      policy: { schedule: ['10ms', '20ms'] },
    });
    await enqueueMany(engine.db, 'outage', 'a.b', 250);
    await until(
      () => ended('outage', 'dead'),
      (count) => count === 250,
    );
    expect(receiver.requests).toHaveLength(750);
    const before = new Map(receiver.requests.map((request) => [request.webhookId, request.body.toString()]));

    receiver.respond(() => ({ status: 200 }));
    const asked = await call('POST', `outage/endpoints/${id}/recover`, { since: anHourAgo(), rate: 500 });
    expect([asked.status, asked.json]).toMatchObject([
      202,
      { state: 'running', action: 'resend', filter: { endpoint: id, states: ['dead', 'cancelled'] } },
    ]);
    expect(await replayEnds('outage', asked.json.id)).toMatchObject({
      state: 'done',
      total: 250,
      moved: 250,
      skipped: 0,
    });
    await until(
      () => ended('outage', 'delivered'),
      (count) => count === 250,
    );
    const again = receiver.requests.slice(750);
    expect(again).toHaveLength(250);
    expect(new Map(again.map((request) => [request.webhookId, request.body.toString()]))).toEqual(before);
    const last = again.at(-1)!;
    expect(() => new Webhook(secret).verify(last.body.toString(), last.headers)).not.toThrow();
    const { rows } = await engine.db.query(
      `select n, generation, count(*)::int as c from posthaste.deliveries where tenant = 'outage' group by 1, 2`,
    );
    expect(rows).toEqual([{ n: 4, generation: 2, c: 250 }]);
    await receiver.close();
  }, 120_000);

  it('gives what it sends again a schedule of its own: a failure on the way is retried', async () => {
    await seedTenant(engine.db, 'flaky');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    const { id } = await seedEndpoint(engine.db, 'flaky', {
      url: receiver.url,
      policy: { schedule: ['10ms'] },
    });
    await enqueueMany(engine.db, 'flaky', 'a.b', 1);
    await until(
      () => ended('flaky', 'dead'),
      (count) => count === 1,
    );
    receiver.respond((_request, n) => ({ status: n < 3 ? 500 : 200 }));
    const { json } = await call('POST', `flaky/dead-letters/replay`, { filter: { endpoint: id } });
    expect(await replayEnds('flaky', json.id)).toMatchObject({
      state: 'done',
      moved: 1,
      source: 'dead_letters',
    });
    await until(
      () => ended('flaky', 'delivered'),
      (count) => count === 1,
    );
    expect(receiver.requests).toHaveLength(4);
    await receiver.close();
  }, 60_000);

  it('with `missed` brings what was published while the endpoint was disabled, with the sequence of then', async () => {
    await seedTenant(engine.db, 'away');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'away', { url: receiver.url, types: ['a.b'] });
    expect((await call('POST', `away/endpoints/${id}/disable`)).status).toBe(200);
    const missed = await enqueueMany(engine.db, 'away', 'a.b', 3);
    await enqueueMany(engine.db, 'away', 'other', 2);
    const fannedOut = async () =>
      (await engine.db.query(`select count(*)::int as c from posthaste.event_fanouts where tenant = 'away'`))
        .rows[0].c;
    await until(fannedOut, (count) => count === 5);
    const refused = await call('POST', `away/endpoints/${id}/recover`, { since: anHourAgo(), missed: true });
    expect([refused.status, refused.json.code]).toEqual([409, 'endpoint_disabled']);
    await call('POST', `away/endpoints/${id}/enable`);
    const { json } = await call('POST', `away/endpoints/${id}/recover`, { since: anHourAgo(), missed: true });
    expect(await replayEnds('away', json.id)).toMatchObject({ state: 'done', made: 3, moved: 0 });
    await receiver.waitFor(3);
    await until(
      () => ended('away', 'delivered'),
      (count) => count === 3,
    );
    expect(receiver.requests.map((request) => request.webhookId).toSorted()).toEqual(missed.toSorted());
    const sequences = new Map(
      (
        await engine.db.query(`select event, sequence from posthaste.event_fanouts where tenant = 'away'`)
      ).rows.map((row) => [row.event, row.sequence]),
    );
    for (const { webhookId, body } of receiver.requests)
      expect(JSON.parse(body.toString()).sequence).toBe(sequences.get(webhookId));
    const again = await call('POST', `away/endpoints/${id}/recover`, { since: anHourAgo(), missed: true });
    expect(await replayEnds('away', again.json.id)).toMatchObject({ state: 'done', made: 0, total: 0 });
    await receiver.close();
  }, 60_000);
});

describe('bulk cancel and resend', () => {
  it('end what waits, and bring it back', async () => {
    await seedTenant(engine.db, 'bulk');
    const receiver = await startReceiver({ respond: () => ({ status: 404 }) });
    await seedEndpoint(engine.db, 'bulk', { url: receiver.url, policy: { schedule: ['1h'] } });
    await enqueueMany(engine.db, 'bulk', 'a.b', 40);
    const waiting = async () =>
      (
        await engine.db.query(
          `select count(*)::int as c from posthaste.work where tenant = 'bulk' and state = 'retrying'`,
        )
      ).rows[0].c;
    await until(waiting, (count) => count === 40);
    const cancelled = await call('POST', 'bulk/deliveries/cancel', { filter: { status: 404 } });
    expect(await replayEnds('bulk', cancelled.json.id)).toMatchObject({ action: 'cancel', moved: 40 });
    expect(await ended('bulk', 'cancelled')).toBe(40);
    receiver.respond(() => ({ status: 200 }));
    const resent = await call('POST', 'bulk/deliveries/resend', {
      filter: { state: 'cancelled' },
      rate: 500,
    });
    expect(await replayEnds('bulk', resent.json.id)).toMatchObject({ action: 'resend', moved: 40 });
    await until(
      () => ended('bulk', 'delivered'),
      (count) => count === 40,
    );
    expect(receiver.requests).toHaveLength(80);
    await receiver.close();
  }, 60_000);

  it('a waiting delivery that is tried now and fails keeps its schedule', async () => {
    await seedTenant(engine.db, 'kept');
    const receiver = await startReceiver({ respond: () => ({ status: 503 }) });
    await seedEndpoint(engine.db, 'kept', { url: receiver.url, policy: { schedule: ['1h', '2h'] } });
    await enqueueMany(engine.db, 'kept', 'a.b', 5);
    const rows = async () =>
      (
        await engine.db.query(
          `select delivery, n, step, burned, state, due_at from posthaste.work where tenant = 'kept' order by delivery`,
        )
      ).rows;
    const before = await until(
      rows,
      (all) => all.length === 5 && all.every((row) => row.state === 'retrying'),
    );
    const { json } = await call('POST', 'kept/deliveries/resend', { filter: {}, rate: 500 });
    expect(await replayEnds('kept', json.id)).toMatchObject({ moved: 5 });
    const after = await until(rows, (all) => all.every((row) => row.state === 'retrying' && row.n === 2));
    expect(after).toEqual(before.map((row) => ({ ...row, n: 2 })));
    await receiver.close();
  }, 60_000);
});

describe('disabling or deleting an endpoint', () => {
  it('ends what waits for it, visibly; enabled again, `recover` brings it back', async () => {
    await seedTenant(engine.db, 'ended');
    const receiver = await startReceiver({ respond: () => ({ status: 503 }) });
    const { id } = await seedEndpoint(engine.db, 'ended', {
      url: receiver.url,
      policy: { schedule: ['1h'] },
    });
    await enqueueMany(engine.db, 'ended', 'a.b', 10);
    const waiting = async () =>
      (
        await engine.db.query(
          `select count(*)::int as c from posthaste.work where tenant = 'ended' and state = 'retrying'`,
        )
      ).rows[0].c;
    const reasons = async () =>
      (
        await engine.db.query(
          `select state, reason, count(*)::int as c from posthaste.deliveries where tenant = 'ended' group by 1, 2`,
        )
      ).rows;
    await until(waiting, (count) => count === 10);
    await call('POST', `ended/endpoints/${id}/disable`);
    await until(
      () => ended('ended', 'cancelled'),
      (count) => count === 10,
    );
    expect(await reasons()).toEqual([{ state: 'cancelled', reason: 'endpoint_disabled', c: 10 }]);
    await call('POST', `ended/endpoints/${id}/enable`);
    const { json } = await call('POST', `ended/endpoints/${id}/recover`, { since: anHourAgo(), rate: 500 });
    expect(await replayEnds('ended', json.id)).toMatchObject({ moved: 10 });
    await until(waiting, (count) => count === 10);
    const deleted = await fetch(`${url}/v1/tenants/ended/endpoints/${id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    expect(deleted.status).toBe(204);
    await until(
      () => ended('ended', 'cancelled'),
      (count) => count === 10,
    );
    expect(await reasons()).toEqual([{ state: 'cancelled', reason: 'endpoint_deleted', c: 10 }]);
    await receiver.close();
  }, 60_000);
});

describe('a replay', () => {
  it('of one tenant does not hold up another, nor live events of its own endpoint', async () => {
    const slow = await startReceiver({ respond: () => ({ status: 400 }) });
    const quick = await startReceiver({ respond: () => ({ status: 400 }) });
    for (const [tenant, receiver] of [
      ['greedy', slow],
      ['modest', quick],
    ] as const) {
      await seedTenant(engine.db, tenant);
      await seedEndpoint(engine.db, tenant, { url: receiver.url, cap: 4, policy: { max_attempts: 1 } });
    }
    await enqueueMany(engine.db, 'greedy', 'a.b', 300);
    await enqueueMany(engine.db, 'modest', 'a.b', 20);
    await until(
      async () => (await ended('greedy', 'dead')) + (await ended('modest', 'dead')),
      (count) => count === 320,
    );
    slow.respond(() => ({ status: 200, delayMs: 300 })); // 13 a second: half a minute of work
    quick.respond(() => ({ status: 200 }));
    const greedy = await call('POST', 'greedy/dead-letters/replay', { filter: {}, rate: 1000 });
    await slow.waitFor(310);
    const modest = await call('POST', 'modest/dead-letters/replay', { filter: {}, rate: 1000 });
    const [live] = await enqueueMany(engine.db, 'greedy', 'live', 1);
    await slow.waitForRequest((request) => request.webhookId === live, 15_000);
    await quick.waitFor(40, 15_000);
    expect(slow.requests.length).toBeLessThan(600);
    expect(await replayEnds('modest', modest.json.id)).toMatchObject({ moved: 20 });
    await call('POST', `greedy/replays/${greedy.json.id}/cancel`);
    const rest = await call('POST', 'greedy/deliveries/cancel', { filter: {} });
    await replayEnds('greedy', rest.json.id);
    await slow.close();
    await quick.close();
  }, 90_000);
});
