/** Events through the API: exact bytes, batches, raw bodies, reading back. */
import { describe, expect, test } from 'vitest';
import { idTimeMs } from '../../src/domain/ids.ts';
import { MAX_EVENT_BYTES, rig } from './support.ts';

const api = rig();

async function stored(tenant: string) {
  const { rows } = await api.db.query(
    `select v.*, convert_from(v.body, 'UTF8') as text, o.seq from posthaste.events v
      join posthaste.outbox o on o.tenant = v.tenant and o.event = v.id where v.tenant = $1 order by o.seq`,
    [tenant],
  );
  return rows;
}

describe('one event', () => {
  test('is committed when 202 arrives, under an id that carries its time', async () => {
    const tenant = await api.tenant();
    const pokes = api.pokes;
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events`, { type: 'a.b', data: { n: 1 } });
    expect(answer.status).toBe(202);
    expect(answer.json).toEqual({
      id: expect.stringMatching(/^evt_/),
      type: 'a.b',
      created_at: expect.any(String),
    });
    const [row] = await stored(tenant);
    expect(row).toMatchObject({
      id: answer.json.id,
      type: 'a.b',
      raw: false,
      content_type: 'application/json',
    });
    expect(row.created_at.getTime()).toBe(idTimeMs(row.id));
    expect(row.created_at.toISOString()).toBe(answer.json.created_at);
    expect(row.occurred_at).toEqual(row.created_at);
    expect(api.pokes).toBe(pokes + 1);
  });

  test.each([
    ['big integers', '{"n":123456789012345678901234567890}'],
    ['spaces and line breaks', '{ "a" :\t1 ,\r\n "b":[ 2 ] }'],
    ['key order and duplicate keys', '{"b":1,"a":2,"b":3}'],
    ['escapes', '"\\u0041\\/\\ud83d\\ude00"'],
    ['a lone surrogate escape', '"\\ud800"'],
    ['a NUL escape', '"\\u0000"'],
    ['other scripts', '{"name":"Zoë ✓ 日本 👋"}'],
    ['numbers in their form', '[1.0,1e2,-0,0.10]'],
    ['deep nesting', `${'['.repeat(20_000)}${']'.repeat(20_000)}`],
    ['null', 'null'],
  ])('keeps the text of data: %s', async (_, data) => {
    const tenant = await api.tenant();
    const text = `{"id":null, "data" :${data}\n,"type":"t"}`;
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events`, text);
    expect(answer.status).toBe(202);
    const { rows } = await api.db.query('select body from posthaste.events where tenant = $1', [tenant]);
    expect(rows[0].body.toString()).toBe(data);
    const shown = await api.call('GET', `/v1/tenants/${tenant}/events/${answer.json.id}`);
    expect(shown.json).toMatchObject({ body: data, body_encoding: 'text', bytes: Buffer.byteLength(data) });
  });

  test('keeps version and time exactly', async () => {
    const tenant = await api.tenant();
    const text =
      '{"type":"t","data":1,"version":9223372036854775807,"timestamp":"2020-02-29T23:59:59.999+00:00"}';
    const { json } = await api.call('POST', `/v1/tenants/${tenant}/events`, text);
    const shown = await api.call('GET', `/v1/tenants/${tenant}/events/${json.id}`);
    expect(shown.json).toMatchObject({
      version: '9223372036854775807',
      timestamp: '2020-02-29T23:59:59.999Z',
    });
    expect(shown.json.created_at).toBe(json.created_at);
  });

  test('of exactly the largest size is taken, with a hint', async () => {
    const tenant = await api.tenant();
    const data = 'x'.repeat(MAX_EVENT_BYTES - 2);
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data });
    expect(answer.status).toBe(202);
    expect(answer.json.hint).toMatch(/20 KB/);
  });

  test('is the same through the API and through posthaste.enqueue', async () => {
    const tenant = await api.tenant();
    const data = '{"n": 10000000000000000000001}';
    await api.call(
      'POST',
      `/v1/tenants/${tenant}/events`,
      `{"type":"t","data":${data},"id":"api","version":5}`,
    );
    await api.db.query('select posthaste.enqueue($1, $2, $3, $4, $5)', [tenant, 't', data, 'sql', 5]);
    const [a, b] = await stored(tenant);
    const same = ['type', 'raw', 'content_type', 'version', 'text'];
    expect(same.map((name) => a[name])).toEqual(same.map((name) => b[name]));
    const hashes = await api.db.query(
      'select count(distinct content_hash) as n from posthaste.event_keys where tenant = $1',
      [tenant],
    );
    expect(hashes.rows[0].n).toBe(1);
  });
});

describe('raw events', () => {
  test.each([
    ['text', 'text/plain; charset=iso-8859-1', Buffer.from([0xe9, 0x00, 0xff])],
    ['no content at all', 'application/json', Buffer.alloc(0)],
    ['xml', 'application/xml', Buffer.from('<a/>')],
    ['broken JSON', 'application/json', Buffer.from('{"a":')],
  ])('keep %s as it is', async (_, contentType, body) => {
    const tenant = await api.tenant();
    const path = `/v1/tenants/${tenant}/events?mode=raw&type=raw.made&version=3`;
    const answer = await api.call('POST', path, body, { 'content-type': contentType, 'webhook-id': 'r1' });
    expect([answer.status, answer.json.id]).toEqual([202, 'r1']);
    const { rows } = await api.db.query('select * from posthaste.events where tenant = $1', [tenant]);
    expect(rows[0]).toMatchObject({ raw: true, content_type: contentType, type: 'raw.made' });
    expect(rows[0].body.equals(body)).toBe(true);
    const shown = await api.call('GET', `/v1/tenants/${tenant}/events/r1`);
    expect(
      Buffer.from(shown.json.body, shown.json.body_encoding === 'text' ? 'utf8' : 'base64').equals(body),
    ).toBe(true);
  });
});

describe('a batch', () => {
  test('of 1,000 is one commit, in order', async () => {
    const tenant = await api.tenant();
    const events = Array.from({ length: 1000 }, (_, n) => ({ type: `t${n % 7}`, data: { n } }));
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events });
    expect(answer.status).toBe(202);
    const rows = await stored(tenant);
    expect(rows.map((row) => JSON.parse(row.text).n)).toEqual(events.map((event) => event.data.n));
    expect(rows.map((row) => row.id)).toEqual(answer.json.data.map((event: { id: string }) => event.id));
    const { rows: xids } = await api.db.query(
      'select count(distinct xid) as n from posthaste.outbox where tenant = $1',
      [tenant],
    );
    expect(xids[0].n).toBe(1);
  });

  test('keeps the text of every data, whatever the order of fields', async () => {
    const tenant = await api.tenant();
    const text =
      '{ "events" : [ {"type":"a","data": {"x":1.0} } , {"data":[ ],"type":"b"}, {"data":"}]","id":"c","type":"c"} ] }';
    expect((await api.call('POST', `/v1/tenants/${tenant}/events/batch`, text)).status).toBe(202);
    expect((await stored(tenant)).map((row) => row.text)).toEqual(['{"x":1.0}', '[ ]', '"}]"']);
  });

  test('with a conflicting id writes nothing and names each', async () => {
    const tenant = await api.tenant();
    await api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data: 1, id: 'a' });
    const events = [
      { type: 't', data: 1 },
      { type: 't', data: 2, id: 'a' },
      { type: 't', data: 1, id: 'b' },
      { type: 'u', data: 1, id: 'a' },
    ];
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events });
    expect([answer.status, answer.json.code]).toEqual([409, 'event_conflict']);
    expect(answer.json.errors.map((error: { pointer: string }) => error.pointer)).toEqual([
      '/events/1/id',
      '/events/3/id',
    ]);
    expect(await stored(tenant)).toHaveLength(1);
    const ids = await api.db.query('select id from posthaste.event_keys where tenant = $1', [tenant]);
    expect(ids.rows).toEqual([{ id: 'a' }]);
  });

  test('may repeat an id with the same content: it is one event', async () => {
    const tenant = await api.tenant();
    const event = { type: 't', data: 1, id: 'a' };
    const answer = await api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events: [event, event] });
    expect(answer.json.data.map((each: { id: string }) => each.id)).toEqual(['a', 'a']);
    expect(await stored(tenant)).toHaveLength(1);
    const again = await api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events: [event, event] });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
  });
});

describe('lists', () => {
  test('page through everything once, newest first, under filters', async () => {
    const tenant = await api.tenant();
    const events = Array.from({ length: 25 }, (_, n) => ({ type: n % 5 === 0 ? 'five' : 'other', data: n }));
    const made = await api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events });
    const ids = made.json.data.map((event: { id: string }) => event.id);

    const walk = async (query: string): Promise<string[]> => {
      const seen: string[] = [];
      for (let cursor = ''; ; ) {
        const page = await api.call('GET', `/v1/tenants/${tenant}/events?${query}${cursor}`);
        expect(page.status).toBe(200);
        seen.push(...page.json.data.map((event: { id: string }) => event.id));
        if (page.json.next_cursor === null) return seen;
        cursor = `&cursor=${page.json.next_cursor}`;
      }
    };
    expect((await walk('limit=7')).toSorted()).toEqual(ids.toSorted());
    expect(await walk('limit=200')).toEqual(ids.toSorted().reverse());
    expect(await walk('limit=2&type=five')).toHaveLength(5);
    expect(await walk('limit=25')).toHaveLength(25);
    const soon = new Date(Date.now() + 60_000).toISOString();
    expect(await walk(`since=${soon}`)).toEqual([]);
    expect(await walk(`until=${soon}`)).toHaveLength(25);
  });

  test('a cursor is worth nothing under other filters, limits apart, or for another tenant', async () => {
    const [a, b] = [await api.tenant(), await api.tenant()];
    const events = [1, 2, 3].map((data) => ({ type: 't', data }));
    await api.call('POST', `/v1/tenants/${a}/events/batch`, { events });
    const { next_cursor } = (await api.call('GET', `/v1/tenants/${a}/events?limit=1`)).json;
    expect(
      (await api.call('GET', `/v1/tenants/${a}/events?limit=2&cursor=${next_cursor}`)).json.data,
    ).toHaveLength(2);
    for (const path of [
      `/v1/tenants/${a}/events?type=t&`,
      `/v1/tenants/${b}/events?`,
      `/v1/tenants/${a}/deliveries?`,
    ]) {
      const answer = await api.call('GET', `${path}cursor=${next_cursor}`);
      expect([answer.status, answer.json.code]).toEqual([400, 'cursor_invalid']);
    }
  });

  test("another tenant's event is not found", async () => {
    const [a, b] = [await api.tenant(), await api.tenant()];
    const { json } = await api.call('POST', `/v1/tenants/${a}/events`, { type: 't', data: 1 });
    expect((await api.call('GET', `/v1/tenants/${b}/events/${json.id}`)).status).toBe(404);
    expect((await api.call('POST', `/v1/tenants/${b}/events/${json.id}/resend`)).status).toBe(404);
  });
});
