/** Test sends through API and engine: answered with the attempt, whatever the state of the endpoint. */
import { Webhook } from 'standardwebhooks';
import { beforeAll, describe, expect, it } from 'vitest';
import type { RunningProcess } from '../../src/process.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let api: RunningProcess;
let count = 0;
beforeAll(async () => {
  engine = await prepareEngine();
  api = await engine.start(['api']);
  await engine.start(['relay', 'worker']);
});

const call = async (method: string, path: string, body?: string) => {
  const response = await fetch(api.url + path, {
    method,
    headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted, not typed
  return { status: response.status, json: (await response.json()) as any };
};

/** A tenant with an endpoint that answers as told. */
async function subject(
  respond?: Parameters<TestReceiver['respond']>[0],
  options: { cap?: number; timeoutMs?: number; policy?: unknown } = {},
) {
  const tenant = `test${++count}`;
  await seedTenant(engine.db, tenant);
  const receiver = await startReceiver(respond === undefined ? {} : { respond });
  const { id, secret } = await seedEndpoint(engine.db, tenant, { url: receiver.url, ...options });
  const path = `/v1/tenants/${tenant}/endpoints/${id}`;
  return { tenant, receiver, id, secret, path, test: (body?: string) => call('POST', `${path}/test`, body) };
}
const state = async (endpoint: string) =>
  (
    await engine.db.query(
      'select s.*, e.state, e.disabled_reason from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint where s.endpoint = $1',
      [endpoint],
    )
  ).rows[0];

describe('a test send', () => {
  it('answers with the attempt, signed and logged like any other, and is no part of the traffic', async () => {
    const { tenant, receiver, id, secret, path, test } = await subject(() => ({
      status: 201,
      body: 'thanks',
    }));
    await seedEndpoint(engine.db, tenant, { url: `${receiver.url}/other` });
    const { status, json } = await test(
      '{"event_type": "invoice.paid", "data": {"n": 12345678901234567890,  "a":1,"a":2}}',
    );
    expect(status).toBe(200);
    expect(json).toMatchObject({
      delivered: true,
      event_type: 'invoice.paid',
      attempt: { n: 1, class: 'ok', decision: 'delivered', response: { status: 201, body: 'thanks' } },
    });
    const [request] = receiver.requests;
    const text = request!.body.toString();
    expect(new Webhook(secret).verify(text, request!.headers)).toMatchObject({
      id: json.event,
      type: 'invoice.paid',
    });
    expect(text.endsWith(',"data":{"n": 12345678901234567890,  "a":1,"a":2}}')).toBe(true);
    expect(json.attempt.request.body).toBe(text);

    await enqueueMany(engine.db, tenant, 'live.one', 1); // the tenant's order has no gap
    await receiver.waitFor(3);
    expect(receiver.requests.filter(({ path }) => path === '/other')).toHaveLength(1);
    const sequence = JSON.parse(receiver.requests.at(-1)!.body.toString()).sequence;
    expect(sequence).toBe(1);
    const listed = async (what: string): Promise<string[]> =>
      (await call('GET', `/v1/tenants/${tenant}/${what}`)).json.data.map((row: { id: string }) => row.id);
    expect(await listed('events')).not.toContain(json.event);
    expect(await listed('events?test=true')).toEqual([json.event]);
    expect(await listed(`deliveries?endpoint=${id}`)).not.toContain(json.delivery);
    expect(await listed('deliveries?kind=test')).toEqual([json.delivery]);
    expect((await call('GET', `/v1/tenants/${tenant}/events/${json.event}`)).json).toMatchObject({
      test: true,
      deliveries: [{ id: json.delivery, kind: 'test' }],
    });
    expect((await call('GET', path)).status).toBe(200);
    await receiver.close();
  });

  it('that fails says why in the words of every attempt, and not that attempts are used up', async () => {
    const answers = [{ status: 503, headers: { 'retry-after': '3600' } }, { status: 401 }, { status: 410 }];
    const { receiver, test } = await subject((_request, n) => answers[n]!, {
      policy: { retry_4xx: false },
    });
    const [asked, refused, gone] = [await test(), await test(), await test()].map(({ json }) => json.attempt);
    expect(asked).toMatchObject({
      rule: 'test',
      error: expect.stringContaining('503'),
      own_next_attempt_at: expect.any(String),
      retry_after_seconds: 3_600,
      why: expect.stringMatching(
        /^A test is tried once; Retry-After asked for 3600 s; its own schedule said \w+day .* UTC\.$/,
      ),
    });
    expect(refused).toMatchObject({ rule: 'not_retried', why: 'This outcome is not retried.' });
    expect(gone).toMatchObject({ rule: 'gone', why: 'The receiver says that the endpoint is gone.' });
    await receiver.close();
  });

  it('of an endpoint that fails is a result: never repeated, no dead letter, nothing for the breaker', async () => {
    const { tenant, receiver, id, test } = await subject(() => ({
      status: 503,
      headers: { 'retry-after': '3600' },
      body: 'no',
    }));
    for (let i = 0; i < 21; i++)
      expect((await test()).json).toMatchObject({ delivered: false, event_type: 'posthaste.test' });
    expect((await test()).json.attempt).toMatchObject({
      class: 'http_503',
      decision: 'dead',
      next_attempt_at: null,
      response: { status: 503, body: 'no' },
      rule: 'test',
    });
    expect(receiver.requests).toHaveLength(22);
    expect((await call('GET', `/v1/tenants/${tenant}/dead-letters`)).json.data).toEqual([]);
    expect(await state(id)).toMatchObject({
      health: 'closed',
      mode: 'shared',
      fails_in_row: 0,
      test_in_flight: 0,
      in_flight: 0,
    });
    expect(
      (await engine.db.query('select from posthaste.health_inbox where endpoint = $1', [id])).rowCount,
    ).toBe(0);
    await receiver.close();
  });

  it('does not disable an endpoint that answers 410', async () => {
    const { receiver, id, test } = await subject(() => ({ status: 410 }));
    expect((await test()).json).toMatchObject({ delivered: false, attempt: { class: 'http_410' } });
    expect(
      (await engine.db.query('select from posthaste.health_inbox where endpoint = $1', [id])).rowCount,
    ).toBe(0);
    expect(await state(id)).toMatchObject({ state: 'active' });
    await receiver.close();
  });

  it('reaches a paused and a disabled endpoint, which stay so', async () => {
    const { receiver, id, path, test } = await subject();
    await call('POST', `${path}/pause`);
    expect((await test()).json).toMatchObject({ delivered: true });
    expect(await state(id)).toMatchObject({ state: 'paused' });
    await call('POST', `${path}/disable`);
    expect((await test()).json).toMatchObject({ delivered: true });
    expect(await state(id)).toMatchObject({ state: 'disabled', disabled_reason: 'operator' });
    await receiver.close();
  });

  it('has a slot of its own when all others are taken, and a second one meanwhile is refused', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const isTest = (body: Buffer): boolean => JSON.parse(body.toString()).type === 'posthaste.test';
    const { tenant, receiver, test } = await subject(
      ({ body }) => (isTest(body) ? { status: 200 } : { status: 200, until: promise }),
      { cap: 2 },
    );
    await enqueueMany(engine.db, tenant, 'a.b', 10);
    await receiver.waitFor(2);
    expect((await test()).json).toMatchObject({ delivered: true });
    expect(receiver.highWater()).toBe(3);

    const gate = Promise.withResolvers<void>();
    receiver.respond(({ body }) => ({ status: 200, until: isTest(body) ? gate.promise : promise }));
    const first = test();
    await receiver.waitFor(4);
    expect(await test()).toMatchObject({ status: 409, json: { code: 'test_in_flight' } });
    gate.resolve();
    expect((await first).json).toMatchObject({ delivered: true });
    resolve();
    await receiver.waitFor(12);
    await receiver.close();
  });

  it('of an endpoint whose breaker is open counts as its probe', async () => {
    let healthy = false;
    const policy = { schedule: Array.from({ length: 40 }, () => '20ms') };
    const { tenant, receiver, id, test } = await subject(() => ({ status: healthy ? 200 : 500 }), { policy });
    await enqueueMany(engine.db, tenant, 'a.b', 2);
    await until(
      () => state(id),
      (row) => row.health === 'open',
    );
    expect((await test()).json).toMatchObject({ delivered: false });
    expect(await state(id)).toMatchObject({ health: 'open' });
    healthy = true;
    expect((await test()).json).toMatchObject({ delivered: true }); // long before the probe would have been due
    await until(
      () => state(id),
      (row) => row.health === 'half_open' || row.health === 'recovering' || row.health === 'closed',
      10_000,
    );
    await receiver.close();
  });

  it('takes as long as the endpoint’s own limit when it hangs', async () => {
    const { receiver, test } = await subject(() => ({ until: new Promise(() => {}) }), { timeoutMs: 1_000 });
    const { json } = await test();
    expect(json).toMatchObject({ delivered: false, attempt: { class: 'deadline', response: null } });
    expect(json.attempt.duration_ms).toBeGreaterThanOrEqual(990);
    await receiver.close();
  });

  it('of an endpoint that is not there, or with a body that is none, is refused', async () => {
    const { tenant, receiver, test } = await subject();
    expect(
      await call('POST', `/v1/tenants/${tenant}/endpoints/ep_01KD5V3Q9BC6PK4RVB9ZY3MXW8/test`),
    ).toMatchObject({
      status: 404,
      json: { code: 'endpoint_not_found' },
    });
    expect(await test('{"event_type":"no spaces","more":1}')).toMatchObject({
      status: 422,
      json: { errors: [{ pointer: '/more' }, { pointer: '/event_type' }] },
    });
    expect(await test('[]')).toMatchObject({ status: 422 });
    expect(receiver.requests).toHaveLength(0);
    await receiver.close();
  });
});

it('without a worker the answer says so, and the next test is not in its way', async () => {
  const lonely = await prepareEngine();
  const { url } = await lonely.start(['api']);
  await seedTenant(lonely.db, 'lonely');
  const { id } = await seedEndpoint(lonely.db, 'lonely', { url: 'http://127.0.0.1:9', timeoutMs: 1_000 });
  for (let i = 0; i < 2; i++) {
    const response = await fetch(`${url}/v1/tenants/lonely/endpoints/${id}/test`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    expect(response.status).toBe(504);
    expect(await response.json()).toMatchObject({
      code: 'test_not_sent',
      delivery: expect.stringMatching(/^dlv_/),
    });
  }
  expect((await lonely.db.query('select from posthaste.work')).rowCount).toBe(0);
  expect((await lonely.db.query('select from posthaste.dead_letters')).rowCount).toBe(0);
});
