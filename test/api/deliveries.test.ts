/** Deliveries: lists over unfinished and ended ones, attempts as sent and received, resend, cancel, dead letters. */
import { beforeAll, describe, expect, test } from 'vitest';
import { makeTest } from '../../src/db/tests.ts';
import { newId } from '../../src/ids.ts';
import { claim } from '../support/claim.ts';
import { seedEndpoint } from '../support/seed.ts';
import { DEAD, maker, RETRYING } from './made.ts';
import { rig } from './support.ts';

const api = rig();

const { attempt, setUp } = maker(api);

describe('lists', () => {
  let it: Awaited<ReturnType<typeof setUp>>;
  let byState: Record<string, string[]>;
  beforeAll(async () => {
    it = await setUp(12);
    const d = it.deliveries;
    await attempt(it.endpoint, d.slice(0, 4));
    await attempt(it.endpoint, d.slice(4, 6), DEAD);
    await attempt(it.endpoint, d.slice(6, 9), {
      ...RETRYING,
      due_at: Date.now() + 60_000,
    });
    for (const delivery of d.slice(9, 10)) await api.call('POST', `${it.path}/${delivery}/cancel`);
    byState = {
      delivered: d.slice(0, 4),
      dead: d.slice(4, 6),
      retrying: d.slice(6, 9),
      cancelled: d.slice(9, 10),
      ready: d.slice(10),
    };
  });

  const walk = async (query: string, path = it.path): Promise<string[]> => {
    const ids: string[] = [];
    for (let cursor = ''; ; ) {
      const { status, json } = await api.call('GET', `${path}?${query}${cursor}`);
      expect(status).toBe(200);
      ids.push(...json.data.map((delivery: { id: string }) => delivery.id));
      if (json.next_cursor === null) return ids;
      cursor = `&cursor=${json.next_cursor}`;
    }
  };

  test('show unfinished and ended ones together, newest first, each once', async () => {
    expect(await walk('limit=5')).toEqual(it.deliveries.toReversed());
    expect(await walk('limit=1')).toEqual(it.deliveries.toReversed());
  });

  test('filter by state, status, class, endpoint, event, type and time', async () => {
    for (const [state, ids] of Object.entries(byState)) {
      expect([state, (await walk(`limit=2&state=${state}`)).toSorted()]).toEqual([state, ids]);
    }
    expect(await walk('status=503')).toHaveLength(3);
    expect(await walk('class=http_4xx')).toHaveLength(2);
    expect(await walk(`endpoint=${it.endpoint}&type=test.made`)).toHaveLength(12);
    expect(await walk(`endpoint=${newId('ep')}`)).toEqual([]);
    expect(await walk('type=other')).toEqual([]);
    const { event } = (await api.call('GET', `${it.path}/${it.deliveries[3]}`)).json;
    expect(await walk(`event=${event}`)).toEqual([it.deliveries[3]]);
    const soon = new Date(Date.now() + 60_000).toISOString();
    const before = new Date(Date.now() - 600_000).toISOString();
    expect(await walk(`since=${before}&until=${soon}`)).toHaveLength(12);
    expect(await walk(`since=${soon}`)).toEqual([]);
    expect(await walk(`until=${before}`)).toEqual([]);
  });

  test('show an event with its deliveries', async () => {
    const { event } = (await api.call('GET', `${it.path}/${it.deliveries[0]}`)).json;
    const { json } = await api.call('GET', `/v1/tenants/${it.tenant}/events/${event}`);
    expect(json.deliveries).toMatchObject([{ id: it.deliveries[0], state: 'delivered', attempts: 1 }]);
  });

  test("another tenant's delivery is not found, whatever is asked", async () => {
    const other = await api.tenant();
    expect(await walk('', `/v1/tenants/${other}/deliveries`)).toEqual([]);
    for (const delivery of [it.deliveries[0], it.deliveries[6]]) {
      for (const [method, rest] of [
        ['GET', ''],
        ['GET', '/attempts'],
        ['POST', '/resend'],
        ['POST', '/cancel'],
      ]) {
        const answer = await api.call(method as string, `/v1/tenants/${other}/deliveries/${delivery}${rest}`);
        expect([answer.status, answer.json.code]).toEqual([404, 'delivery_not_found']);
      }
    }
  });

  test('dead letters page latest first, and come whole as NDJSON', async () => {
    const path = `/v1/tenants/${it.tenant}/dead-letters`;
    const first = await api.call('GET', `${path}?limit=1`);
    const second = await api.call('GET', `${path}?limit=1&cursor=${first.json.next_cursor}`);
    const both = [...first.json.data, ...second.json.data];
    expect(both.map(({ delivery }) => delivery)).toEqual(byState.dead!.toReversed());
    expect(both[0]).toMatchObject({
      reason: 'max_attempts',
      attempts: 1,
      last_status: 400,
      last_class: 'http_4xx',
      endpoint: it.endpoint,
    });
    expect(second.json.next_cursor).toBeNull();
    const all = await api.call('GET', path, undefined, { accept: 'application/x-ndjson' });
    expect(all.headers.get('content-type')).toBe('application/x-ndjson');
    expect(
      all.text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(both);
    const { event } = both[0];
    const found = async (query: string) =>
      (await api.call('GET', `${path}?${query}`)).json.data.map((letter: { event: string }) => letter.event);
    expect(await found(`event=${event}`)).toEqual([event]);
    for (const query of ['reason=max_attempts', 'status=400', 'class=http_4xx', `endpoint=${it.endpoint}`])
      expect(await found(query)).toHaveLength(2);
    for (const query of ['reason=gone', 'status=500', 'class=reset', 'type=other', 'event=none'])
      expect(await found(query)).toEqual([]);
    expect((await api.call('GET', `${path}?reason=tired`)).json.code).toBe('invalid_parameters');
    expect((await api.call('GET', `${path}/count`)).json).toEqual({
      total: 2,
      groups: [
        {
          endpoint: it.endpoint,
          reason: 'max_attempts',
          count: 2,
          first_died_at: both[1].died_at,
          last_died_at: both[0].died_at,
        },
      ],
    });
    expect((await api.call('GET', `${path}/count?status=500`)).json).toEqual({ total: 0, groups: [] });
    expect(
      (
        await api.call('GET', `${path}?endpoint=${newId('ep')}`, undefined, {
          accept: 'application/x-ndjson',
        })
      ).text,
    ).toBe('');
  });
});

describe('attempts', () => {
  test('show what was sent and what came back, in order', async () => {
    const { endpoint, deliveries, path } = await setUp(1);
    const [delivery] = deliveries as [string];
    await attempt(endpoint, [delivery], { ...RETRYING, due_at: Date.now(), error: null });
    await attempt(endpoint, [delivery], {
      ...RETRYING,
      due_at: Date.now(),
      status: null,
      class: 'connect_timeout',
      response_headers: null,
      response_body: null,
    });
    await attempt(endpoint, [delivery], {
      response_body: Buffer.from([0xff, 0]),
      response_truncated: true,
    });
    const { json } = await api.call('GET', `${path}/${delivery}/attempts`);
    expect(json.data.map(({ n, decision }: { n: number; decision: string }) => [n, decision])).toEqual([
      [1, 'retrying'],
      [2, 'retrying'],
      [3, 'delivered'],
    ]);
    const [first, second, third] = json.data;
    const { event, sequence } = (await api.call('GET', `${path}/${delivery}`)).json;
    expect(first).toMatchObject({
      class: 'http_503',
      duration_ms: 12.5,
      next_attempt_at: expect.any(String),
      request: {
        method: 'POST',
        url: 'https://a.com/hook',
        headers: [
          ['host', 'a.com'],
          ['x-key', '[9 characters]'],
        ],
        head_bytes: 400,
        body_encoding: 'text',
      },
      response: {
        status: 503,
        headers: [['content-type', 'text/plain']],
        body: 'thanks',
        body_encoding: 'text',
        truncated: false,
      },
    });
    expect(JSON.parse(first.request.body)).toMatchObject({
      id: event,
      type: 'test.made',
      sequence,
      version: null,
      data: {},
    });
    expect(second.response).toBeNull();
    expect(third.response).toMatchObject({ body: '/wA=', body_encoding: 'base64', truncated: true });
    const page = await api.call('GET', `${path}/${delivery}/attempts?limit=2`);
    expect(page.json.data).toHaveLength(2);
    const rest = await api.call(
      'GET',
      `${path}/${delivery}/attempts?limit=2&cursor=${page.json.next_cursor}`,
    );
    expect([rest.json.data.map(({ n }: { n: number }) => n), rest.json.next_cursor]).toEqual([[3], null]);
  });
});

describe('resend and cancel', () => {
  test('resend brings an ended delivery back, tries a waiting one now, and wakes the workflow', async () => {
    const { endpoint, deliveries, path } = await setUp(2);
    const [dead, waiting] = deliveries as [string, string];
    await attempt(endpoint, [dead], DEAD);
    await attempt(endpoint, [waiting], {
      ...RETRYING,
      due_at: Date.now() + 3_600_000,
    });
    const pokes = api.pokes;
    const again = await api.call('POST', `${path}/${dead}/resend`);
    expect([again.status, again.json]).toEqual([
      202,
      { id: dead, state: 'ready', generation: 2, attempts: 1 },
    ]);
    expect((await api.call('POST', `${path}/${waiting}/resend`)).json).toMatchObject({
      state: 'retrying',
      generation: 1,
    });
    expect(
      Date.parse((await api.call('GET', `${path}/${waiting}`)).json.next_attempt_at),
    ).toBeLessThanOrEqual(Date.now() + 1_000);
    expect(api.pokes).toBe(pokes + 2);
    expect(api.woken).toEqual(
      expect.arrayContaining([
        [dead, 2],
        [waiting, 1],
      ]),
    );
    expect((await api.call('GET', `${path}/${dead}`)).json).toMatchObject({
      state: 'ready',
      kind: 'replay',
      generation: 2,
    });
  });

  test('resend to a disabled endpoint is a conflict', async () => {
    const { tenant, endpoint, deliveries, path } = await setUp(1);
    await attempt(endpoint, deliveries, DEAD);
    await api.call('POST', `/v1/tenants/${tenant}/endpoints/${endpoint}/disable`);
    const answer = await api.call('POST', `${path}/${deliveries[0]}/resend`);
    expect([answer.status, answer.json.code]).toEqual([409, 'endpoint_disabled']);
  });

  test('cancel ends a waiting delivery, leaves an ended one, and waits for an attempt under way', async () => {
    const { endpoint, deliveries, path } = await setUp(3);
    const [waiting, done, sending] = deliveries as [string, string, string];
    await attempt(endpoint, [done]);
    await claim(api.db, [{ delivery: sending, generation: 1, n: 0 }]);
    expect((await api.call('POST', `${path}/${waiting}/cancel`)).json).toMatchObject({
      id: waiting,
      state: 'cancelled',
    });
    expect((await api.call('POST', `${path}/${waiting}/cancel`)).json).toMatchObject({ state: 'cancelled' });
    expect((await api.call('POST', `${path}/${done}/cancel`)).json).toMatchObject({ state: 'delivered' });
    expect((await api.call('POST', `${path}/${sending}/cancel`)).json).toMatchObject({ state: 'sending' });
    expect((await api.call('GET', `${path}/${sending}`)).json).toMatchObject({
      state: 'sending',
      cancel_requested: true,
      next_attempt_at: null,
    });
    expect((await api.call('GET', `${path}/${waiting}`)).json).toMatchObject({
      reason: 'requested',
      finished_at: expect.any(String),
    });
  });

  test('resend of an event reaches ended, waiting and missed endpoints', async () => {
    const { tenant, endpoint, deliveries } = await setUp(1);
    await attempt(endpoint, deliveries, DEAD);
    const { event, sequence } = (await api.call('GET', `/v1/tenants/${tenant}/deliveries/${deliveries[0]}`))
      .json;
    const other = await seedEndpoint(api.db, tenant, { url: 'https://b.com/' });
    await api.db.query(
      `insert into posthaste.event_fanouts (tenant, event_at, event, sequence, deliveries, fanned_out_at)
        select tenant, created_at, id, $2, 1, now() from posthaste.events where tenant = $1`,
      [tenant, sequence],
    );
    const { status, json } = await api.call('POST', `/v1/tenants/${tenant}/events/${event}/resend`);
    expect(status).toBe(202);
    expect(json.data).toHaveLength(2);
    const list = await api.call('GET', `/v1/tenants/${tenant}/deliveries?event=${event}`);
    expect(list.json.data.map((each: { endpoint: string }) => each.endpoint).toSorted()).toEqual(
      [endpoint, other.id].toSorted(),
    );
  });

  test('resend of an event says which endpoints it passes over, and why nothing was sent', async () => {
    const { tenant, endpoint, deliveries } = await setUp(1);
    await attempt(endpoint, deliveries, DEAD);
    const [delivery] = deliveries as [string];
    const { event, sequence } = (await api.call('GET', `/v1/tenants/${tenant}/deliveries/${delivery}`)).json;
    const path = `/v1/tenants/${tenant}`;
    const resend = async () => {
      const { status, json } = await api.call('POST', `${path}/events/${event}/resend`);
      expect(status).toBe(202);
      return json;
    };
    await api.call('POST', `${path}/endpoints/${endpoint}/disable`);
    expect(await resend()).toEqual({
      data: [],
      skipped: [{ endpoint, delivery, reason: 'endpoint_disabled' }],
      reason: 'not_fanned_out',
    });
    await api.db.query(
      `insert into posthaste.event_fanouts (tenant, event_at, event, sequence, deliveries, fanned_out_at)
        select tenant, created_at, id, $2, 1, now() from posthaste.events where tenant = $1`,
      [tenant, sequence],
    );
    const never = await seedEndpoint(api.db, tenant, { url: 'https://b.com/' });
    const other = await seedEndpoint(api.db, tenant, { url: 'https://c.com/', types: ['another.type'] });
    for (const { id } of [never, other]) await api.call('POST', `${path}/endpoints/${id}/disable`);
    const both = [
      { endpoint, delivery, reason: 'endpoint_disabled' },
      { endpoint: never.id, delivery: null, reason: 'endpoint_disabled' },
    ];
    expect(await resend()).toEqual({ data: [], skipped: both, reason: 'endpoints_disabled' });
    await api.call('POST', `${path}/endpoints/${never.id}/enable`);
    expect(await resend()).toMatchObject({ data: [{ state: 'ready' }], skipped: [both[0]], reason: null });
    for (const id of [endpoint, never.id, other.id]) await api.call('DELETE', `${path}/endpoints/${id}`);
    expect(await resend()).toMatchObject({
      data: [],
      skipped: [
        { endpoint, reason: 'endpoint_deleted' },
        { endpoint: never.id, reason: 'endpoint_deleted' },
      ],
      reason: 'no_subscriber',
    });
  });

  test('resend of a test’s event says that it is one', async () => {
    const tenant = await api.tenant();
    const { id } = await seedEndpoint(api.db, tenant, { url: 'https://a.com/' });
    const made = await makeTest(api.db, {
      tenant,
      endpoint: id,
      type: 'a.b',
      body: Buffer.from('{}'),
      slackMs: 1_000,
    });
    if (made.outcome !== 'made') throw new Error(made.outcome);
    expect((await api.call('POST', `/v1/tenants/${tenant}/events/${made.event}/resend`)).json).toEqual({
      data: [],
      skipped: [],
      reason: 'test_event',
    });
  });

  test('hints that fail are not the caller’s concern', () => {
    expect(api.logged.filter((line) => /"level":"(warn|error)"/.test(line))).toEqual([]);
  });
});
