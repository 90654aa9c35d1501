/** Keys, methods, request ids, and the pages that need no key. */
import { describe, expect, test } from 'vitest';
import { createRateLimit } from '../../src/api/rate-limit.ts';
import { ensureAdminKey } from '../../src/api/server.ts';
import { ADMIN_KEY, rig } from './support.ts';

const api = rig({ metricsText: async () => 'posthaste_up 1\n' });
const as = (key: string) => ({ authorization: `Bearer ${key}` });
const tenants = (headers: Record<string, string>) => api.call('GET', '/v1/tenants', undefined, headers);

describe('keys', () => {
  test('are shown once, work, and stop working when revoked', async () => {
    const made = await api.call('POST', '/v1/keys', { name: 'ci' });
    expect(made.status).toBe(201);
    const { key, ...rest } = made.json;
    expect(key).toMatch(/^phk_[0-9A-Z]{26}_[A-Za-z0-9_-]{43}$/);
    expect(rest).toEqual({
      id: expect.stringMatching(/^key_/),
      name: 'ci',
      last4: key.slice(-4),
      created_at: expect.any(String),
    });
    const listed = await api.call('GET', '/v1/keys');
    expect(listed.json.data).toContainEqual(rest);
    expect(listed.text).not.toContain(key);
    expect((await tenants(as(key))).status).toBe(200);
    const { rows } = await api.db.query('select * from posthaste.api_keys');
    expect(JSON.stringify(rows)).not.toContain(key);
    expect((await api.call('DELETE', `/v1/keys/${rest.id}`)).status).toBe(204);
    expect((await tenants(as(key))).status).toBe(401);
    expect((await api.call('DELETE', `/v1/keys/${rest.id}`)).status).toBe(404);
  });

  test('a key revoked by another process is refused within a second', async () => {
    const { key, id } = (await api.call('POST', '/v1/keys', { name: 'x' })).json;
    expect((await tenants(as(key))).status).toBe(200);
    await api.db.query('update posthaste.api_keys set revoked_at = now() where id = $1', [id]);
    await expect
      .poll(async () => (await tenants(as(key))).status, { timeout: 1_500, interval: 100 })
      .toBe(401);
  });

  test('a new admin key replaces the old one', async () => {
    const other = `phk-other-${'x'.repeat(20)}`;
    await ensureAdminKey(api.db, other);
    expect((await tenants(as(other))).status).toBe(200);
    await expect.poll(async () => (await tenants({})).status, { timeout: 1_500, interval: 100 }).toBe(401);
    await ensureAdminKey(api.db, ADMIN_KEY);
    expect((await tenants({})).status).toBe(200);
  });

  test('a key made here can become the admin key', async () => {
    const { key } = (await api.call('POST', '/v1/keys', { name: 'x' })).json;
    await ensureAdminKey(api.db, key);
    expect((await tenants(as(key))).status).toBe(200);
    await ensureAdminKey(api.db, ADMIN_KEY);
    await expect
      .poll(async () => (await tenants(as(key))).status, { timeout: 1_500, interval: 100 })
      .toBe(401);
    expect((await tenants({})).status).toBe(200);
  });

  test.each([
    ['none', '', 'Bearer realm="posthaste"'],
    ['a wrong one', `Bearer ${ADMIN_KEY}x`, 'error="invalid_token"'],
    [
      'one of an unknown id',
      `Bearer phk_01KD5V3Q9BC6PK4RVB9ZY3MXW8_${'a'.repeat(43)}`,
      'error="invalid_token"',
    ],
    ['the right one as basic', `Basic ${ADMIN_KEY}`, 'error="invalid_request"'],
    ['an empty bearer', 'Bearer ', 'error="invalid_request"'],
    ['two', `Bearer ${ADMIN_KEY} ${ADMIN_KEY}`, 'error="invalid_request"'],
    ['a huge one', `Bearer ${'a'.repeat(5_000)}`, 'error="invalid_request"'],
  ])('%s is a 401 with a challenge, on every path below /v1', async (_, authorization, challenge) => {
    for (const [method, path] of [
      ['GET', '/v1/tenants'],
      ['POST', '/v1/tenants/a/events'],
      ['GET', '/v1/nothing'],
      ['DELETE', '/v1/keys'],
    ]) {
      const answer = await api.call(
        method as string,
        path as string,
        method === 'POST' ? '{"type":' : undefined,
        { authorization },
      );
      expect([answer.status, answer.json.code]).toEqual([401, 'unauthorized']);
      if (authorization !== '') expect(answer.headers.get('www-authenticate')).toContain(challenge);
    }
  });

  test('the scheme is read in any case', async () => {
    expect((await tenants({ authorization: `bEARER ${ADMIN_KEY}` })).status).toBe(200);
  });
});

describe('methods', () => {
  test('HEAD is GET without a body', async () => {
    const answer = await api.call('HEAD', '/v1/tenants');
    expect([answer.status, answer.text, answer.headers.get('content-type')]).toEqual([
      200,
      '',
      'application/json',
    ]);
  });

  test('OPTIONS names the methods and needs no key', async () => {
    const answer = await api.call('OPTIONS', '/v1/tenants/x', undefined, { authorization: '' });
    expect([answer.status, answer.headers.get('allow')]).toEqual([
      204,
      'PUT, GET, PATCH, DELETE, HEAD, OPTIONS',
    ]);
  });

  test('others are a 405 that names the methods', async () => {
    const answer = await api.call('POST', '/v1/tenants', {});
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET, HEAD, OPTIONS']);
  });
});

describe('request ids', () => {
  test('a sane one is kept', async () => {
    const answer = await api.call('GET', '/v1/tenants/none', undefined, { 'x-request-id': 'trace-1:2.3_4' });
    expect([answer.headers.get('x-request-id'), answer.json.request_id]).toEqual([
      'trace-1:2.3_4',
      'trace-1:2.3_4',
    ]);
  });

  test.each(['a b', 'a'.repeat(65), '<script>', ''])('%j is replaced', async (given) => {
    const answer = await api.call('GET', '/livez', undefined, { 'x-request-id': given });
    expect(answer.headers.get('x-request-id')).toMatch(/^req_[0-9A-Z]{26}$/);
  });
});

test.each([
  ['/', 'text/html', '/openapi.json'],
  ['/problems', 'text/html', 'tenant_not_found'],
  ['/livez', 'application/json', '"ok":true'],
  ['/readyz', 'application/json', '"database":true'],
  ['/metrics', 'text/plain', 'posthaste_up 1'],
])('%s needs no key', async (path, type, content) => {
  const answer = await api.call('GET', path, undefined, { authorization: '' });
  expect(answer.status).toBe(200);
  expect(answer.headers.get('content-type')).toContain(type);
  expect(answer.text).toContain(content);
});

test('a token bucket lets bursts through, then a steady rate, and says how long to wait', () => {
  let now = 0;
  const limit = createRateLimit({ burst: 3, perSecond: 2, now: () => now });
  const passes = () => {
    try {
      limit.take('a');
      return true;
    } catch {
      return false;
    }
  };
  expect([1, 2, 3, 4].map(passes)).toEqual([true, true, true, false]);
  limit.take('b');
  now = 499;
  expect(passes()).toBe(false);
  now = 500;
  expect([1, 2].map(passes)).toEqual([true, false]);
  now = 60_000;
  expect([1, 2, 3, 4].map(passes)).toEqual([true, true, true, false]);
});
