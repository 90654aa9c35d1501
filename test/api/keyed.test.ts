/** Requests with an Idempotency-Key or an own event id: once, whatever is repeated, raced, or held up elsewhere. */
import { afterEach, describe, expect, test } from 'vitest';
import { type Listening, listen } from '../../src/api/listen.ts';
import { createApi } from '../../src/api/server.ts';
import { purgeIdempotencyKeys } from '../../src/db/idempotency.ts';
import type { Client } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import { masterKeys } from '../support/seed.ts';
import { ADMIN_KEY, type Answer, rig } from './support.ts';

const api = rig();
const open: Client[] = [];

/** A transaction of somebody else that holds what `sql` writes. */
async function hold(
  sql: string,
  values: unknown[],
): Promise<{ end(how: 'commit' | 'rollback'): Promise<void> }> {
  const client = await api.db.connect();
  open.push(client);
  await client.query('set idle_in_transaction_session_timeout = 0');
  await client.query('begin');
  await client.query(sql, values);
  return {
    async end(how) {
      await client.query(how);
      open.splice(open.indexOf(client), 1);
      client.release(true);
    },
  };
}

afterEach(() => {
  for (const client of open.splice(0)) client.release(true);
});

const post = (tenant: string, body: unknown, key?: string): Promise<Answer> =>
  api.call('POST', `/v1/tenants/${tenant}/events`, body, key === undefined ? {} : { 'idempotency-key': key });
const count = async (tenant: string): Promise<number> =>
  (await api.db.query('select count(*) as n from posthaste.events where tenant = $1', [tenant])).rows[0].n;

/** An API on the same database that shares nothing else with ours, as another or a restarted process. */
function another(): Promise<Listening> {
  const log = createLog({ level: 'silent' });
  const config = { egressAllow: { items: [] }, masterKeys, maxEventBytes: 1024 };
  const readiness = async () => ({ ok: true, checks: {} });
  const made = createApi({ db: api.db, log, config, poke: () => {}, readiness });
  return listen(made, { host: '127.0.0.1', port: 0, log });
}

describe('an Idempotency-Key', () => {
  test('gets the first answer again, and says so', async () => {
    const tenant = await api.tenant();
    const first = await post(tenant, { type: 't', data: 1 }, 'k');
    const second = await post(tenant, { type: 't', data: 1 }, 'k');
    expect([first.status, second.status]).toEqual([202, 202]);
    expect(second.json).toEqual(first.json);
    expect(first.headers.get('idempotency-replayed')).toBeNull();
    expect(second.headers.get('idempotency-replayed')).toBe('true');
    expect(await count(tenant)).toBe(1);
  });

  test('of another request is refused: other bytes, other type of content, other parameters', async () => {
    const tenant = await api.tenant();
    await post(tenant, '{"type":"t","data":1}', 'k');
    const refused = [
      await post(tenant, '{"type":"t","data": 1}', 'k'),
      await api.call(
        'POST',
        `/v1/tenants/${tenant}/events/batch`,
        { events: [{ type: 't', data: 1 }] },
        { 'idempotency-key': 'k' },
      ),
      await api.call('POST', `/v1/tenants/${tenant}/events?mode=raw&type=t`, '{"type":"t","data":1}', {
        'idempotency-key': 'k',
      }),
    ];
    expect(refused.map(({ status, json }) => [status, json.code])).toEqual(
      Array(3).fill([422, 'idempotency_key_reused']),
    );
    expect(await count(tenant)).toBe(1);
  });

  test('belongs to its tenant', async () => {
    const [a, b] = [await api.tenant(), await api.tenant()];
    await post(a, { type: 't', data: 1 }, 'k');
    const other = await post(b, { type: 't', data: 2 }, 'k');
    expect([other.status, other.headers.get('idempotency-replayed')]).toEqual([202, null]);
  });

  test('is not spent by a refusal', async () => {
    const tenant = await api.tenant();
    await post(tenant, { type: 't', data: 1, id: 'a' });
    expect((await post(tenant, { type: 't', data: 2, id: 'a' }, 'k')).status).toBe(409);
    expect((await post(tenant, { type: 't', data: 2, id: 'b' }, 'k')).status).toBe(202);
  });

  test('covers a batch', async () => {
    const tenant = await api.tenant();
    const events = [1, 2, 3].map((data) => ({ type: 't', data }));
    const send = () =>
      api.call('POST', `/v1/tenants/${tenant}/events/batch`, { events }, { 'idempotency-key': 'b' });
    const [first, second] = [await send(), await send()];
    expect(second.json).toEqual(first.json);
    expect(await count(tenant)).toBe(3);
  });

  test('makes one event of 60 simultaneous requests', async () => {
    const tenant = await api.tenant();
    const answers = await Promise.all(
      Array.from({ length: 60 }, () => post(tenant, { type: 't', data: 1 }, 'k')),
    );
    expect(new Set(answers.map(({ status, json }) => `${status} ${json.id}`)).size).toBe(1);
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === null)).toHaveLength(1);
    expect(await count(tenant)).toBe(1);
  });

  test('is known to every process and survives restarts and a change of API keys, as an own id does', async () => {
    const tenant = await api.tenant();
    const key = async (name: string) => (await api.call('POST', '/v1/keys', { name })).json;
    const [before, after] = [await key('before'), await key('after')];
    const send = async (url: string, bearer: string, body: object, more = {}) => {
      const response = await fetch(`${url}/v1/tenants/${tenant}/events`, {
        method: 'POST',
        headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json', ...more },
        body: JSON.stringify(body),
      });
      const replayed = response.headers.get('idempotency-replayed') ?? 'false';
      return { status: response.status, replayed, json: await response.json() };
    };
    const keyed = { 'idempotency-key': 'k' };
    const own = { type: 't', data: 1, id: 'own' };
    const first = await send(api.url, before.key, { type: 't', data: 1 }, keyed);
    const firstOwn = await send(api.url, before.key, own);
    await api.call('DELETE', `/v1/keys/${before.id}`);
    const restarted = await another();
    expect((await send(restarted.url, before.key, own)).status).toBe(401);
    expect(await send(restarted.url, after.key, { type: 't', data: 1 }, keyed)).toEqual({
      status: 202,
      replayed: 'true',
      json: first.json,
    });
    expect(await send(restarted.url, after.key, own)).toEqual({
      status: 202,
      replayed: 'true',
      json: firstOwn.json,
    });
    await restarted.close();
    expect(await count(tenant)).toBe(2);
  });

  test('makes one event of 60 requests to two processes at once', async () => {
    const tenant = await api.tenant();
    const other = await another();
    const answers = await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        const response = await fetch(`${n % 2 === 0 ? api.url : other.url}/v1/tenants/${tenant}/events`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${ADMIN_KEY}`,
            'content-type': 'application/json',
            'idempotency-key': 'k',
          },
          body: '{"type":"t","data":1}',
        });
        return `${response.status} ${await response.text()}`;
      }),
    );
    await other.close();
    expect(new Set(answers).size).toBe(1);
    expect(answers[0]).toMatch(/^202 /);
    expect(await count(tenant)).toBe(1);
  });

  test('is forgotten after two days, not before', async () => {
    const tenant = await api.tenant();
    await post(tenant, { type: 't', data: 1 }, 'old');
    await post(tenant, { type: 't', data: 1 }, 'new');
    await api.db.query(
      `update posthaste.idempotency_keys set created_at = now() - case key when 'old' then interval '49 hours' else interval '47 hours' end where tenant = $1`,
      [tenant],
    );
    await purgeIdempotencyKeys(api.db);
    expect((await post(tenant, { type: 't', data: 1 }, 'new')).headers.get('idempotency-replayed')).toBe(
      'true',
    );
    expect((await post(tenant, { type: 't', data: 2 }, 'old')).status).toBe(202);
  });
});

describe('an own id', () => {
  test('with the same content gets the first answer, with another a conflict', async () => {
    const tenant = await api.tenant();
    const first = await post(tenant, { type: 't', data: { a: 1 }, id: 'x' });
    const same = await post(tenant, { type: 't', data: { a: 1 }, id: 'x' });
    expect([same.status, same.json, same.headers.get('idempotency-replayed')]).toEqual([
      202,
      first.json,
      'true',
    ]);
    const others = [
      '{"type":"t","data":{"a":2},"id":"x"}',
      '{"type":"t","data":{"a": 1},"id":"x"}',
      '{"type":"u","data":{"a":1},"id":"x"}',
      '{"type":"t","data":{"a":1},"id":"x","version":1}',
    ];
    for (const body of others) expect((await post(tenant, body)).json.code).toBe('event_conflict');
    expect(await count(tenant)).toBe(1);
  });

  test('makes one event of 60 simultaneous requests, and conflicts for those with another content', async () => {
    const tenant = await api.tenant();
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, n) => post(tenant, { type: 't', data: n % 2, id: 'x' })),
    );
    expect(answers.map(({ status }) => status).toSorted()).toEqual([
      ...Array(30).fill(202),
      ...Array(30).fill(409),
    ]);
    expect(await count(tenant)).toBe(1);
  });

  test('races with a producer and yields to it', async () => {
    const tenant = await api.tenant();
    const producer = await hold('select posthaste.enqueue($1, $2, $3, $4)', [tenant, 't', '1', 'x']);
    const waiting = post(tenant, { type: 't', data: 1, id: 'x' });
    const stranger = await post(tenant, { type: 't', data: 1, id: 'y' });
    expect(stranger.status).toBe(202);
    await producer.end('commit');
    const answer = await waiting;
    expect([answer.status, answer.headers.get('idempotency-replayed')]).toEqual([202, 'true']);
    expect(await count(tenant)).toBe(2);
  });

  test('is free again when the producer rolls back', async () => {
    const tenant = await api.tenant();
    const producer = await hold('select posthaste.enqueue($1, $2, $3, $4)', [tenant, 't', '9', 'x']);
    const waiting = post(tenant, { type: 't', data: 1, id: 'x' });
    await post(tenant, { type: 't', data: 1, id: 'y' });
    await producer.end('rollback');
    const answer = await waiting;
    expect([answer.status, answer.headers.get('idempotency-replayed')]).toEqual([202, null]);
  });
});

test('a key held for more than 5 s is a conflict; strangers notice nothing, however many wait', async () => {
  const tenant = await api.tenant();
  const holders = await Promise.all(
    ['k1', 'k2'].map((key) =>
      hold(`insert into posthaste.idempotency_keys (tenant, key, request_hash) values ($1, $2, '')`, [
        tenant,
        key,
      ]),
    ),
  );
  const start = performance.now();
  const waiters = Array.from({ length: 20 }, (_, n) =>
    post(tenant, { type: 't', data: 1 }, `k${1 + (n % 2)}`),
  );
  const slowest = { keyed: 0, plain: 0 };
  for (let n = 0; performance.now() - start < 3_000; n++) {
    for (const kind of ['keyed', 'plain'] as const) {
      const before = performance.now();
      expect(
        (await post(tenant, { type: 't', data: 1 }, kind === 'keyed' ? `free${n}` : undefined)).status,
      ).toBe(202);
      slowest[kind] = Math.max(slowest[kind], performance.now() - before);
    }
  }
  expect(slowest.keyed).toBeLessThan(1_000);
  expect(slowest.plain).toBeLessThan(1_000);
  const answers = await Promise.all(waiters);
  expect(answers.map(({ status, json }) => `${status} ${json.code}`)).toEqual(
    Array(20).fill('409 request_in_flight'),
  );
  expect(answers[0]?.headers.get('retry-after')).toBe('1');
  expect(performance.now() - start).toBeLessThan(8_000);
  await Promise.all(holders.map((holder) => holder.end('rollback')));
  expect((await post(tenant, { type: 't', data: 1 }, 'k1')).status).toBe(202);
});
