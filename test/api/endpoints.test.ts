/** Endpoints: what is stored, what is shown, and that the sender can use what the API sealed. */
import { X509Certificate } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { prepareEndpoint } from '../../src/activities/prepare.ts';
import { loadEndpoints } from '../../src/db/load.ts';
import { makeCertificate } from '../support/hostile/certificates.ts';
import { masterKeys, seedWork } from '../support/seed.ts';
import { rig } from './support.ts';

const api = rig();

async function endpoint(fields: object = {}) {
  const tenant = await api.tenant();
  const answer = await api.call('POST', `/v1/tenants/${tenant}/endpoints`, {
    url: 'https://example.com/hook',
    ...fields,
  });
  expect(answer.status).toBe(201);
  return { tenant, path: `/v1/tenants/${tenant}/endpoints/${answer.json.id}`, ...answer };
}
const asSender = async (id: string) => prepareEndpoint((await loadEndpoints(api.db, [id]))[0]!, masterKeys);

describe('creation', () => {
  test('gives defaults and a secret that signs', async () => {
    const { json, path, headers } = await endpoint();
    expect(headers.get('location')).toBe(path);
    expect(json).toMatchObject({
      url: 'https://example.com/hook',
      description: null,
      event_types: null,
      state: 'active',
      retry_policy: { preset: 'default' },
      limits: { in_flight: 10, timeout_ms: 15_000 },
      headers: [],
      tls: null,
      traceparent: false,
      secret_kind: 'hmac',
      revision: 1,
    });
    const shown = await api.call('GET', path);
    expect(shown.text).not.toContain('whsec_');
    const ready = await asSender(json.id);
    expect(`whsec_${ready.secrets[0]!.key.toString('base64')}`).toBe(json.secret);
  });

  test('shows what its retry policy comes to, and a changed one after the change', async () => {
    const { json, path } = await endpoint();
    expect(json.retry_schedule).toMatchObject({
      sentence: expect.stringMatching(
        /^21 to 30 attempts within 3 d: the second 15 s to 30 s after the first/,
      ),
      deadline_seconds: 259_200,
      max_attempts: 30,
    });
    expect(json.retry_schedule.attempts.slice(0, 3)).toEqual([
      { n: 1, earliest_seconds: 0, latest_seconds: 0 },
      { n: 2, earliest_seconds: 15, latest_seconds: 30 },
      { n: 3, earliest_seconds: 45, latest_seconds: 90 },
    ]);
    const changed = await api.call('PATCH', path, { retry_policy: { schedule: ['10ms', '5s'] } });
    expect(changed.json.retry_schedule).toEqual({
      sentence:
        '3 attempts within 3 d: the second 10 ms to 11 ms after the first, the longest wait up to 5.5 s.',
      deadline_seconds: 259_200,
      max_attempts: 3,
      attempts: [
        { n: 1, earliest_seconds: 0, latest_seconds: 0 },
        { n: 2, earliest_seconds: 0.01, latest_seconds: 0.011 },
        { n: 3, earliest_seconds: 5.01, latest_seconds: 5.511 },
      ],
    });
  });

  test('refuses a schedule that the default deadline would cut off, when it is made and when it is changed', async () => {
    const retry_policy = { schedule: ['1d', '2d', '3d'] };
    const tenant = await api.tenant();
    const path = `/v1/tenants/${tenant}/endpoints`;
    const made = await api.call('POST', path, { url: 'https://a.com/hook' });
    for (const answer of [
      await api.call('POST', path, { url: 'https://a.com/hook', retry_policy }),
      await api.call('PATCH', `${path}/${made.json.id}`, { retry_policy }),
    ]) {
      expect(answer.status).toBe(422);
      expect(answer.json.errors).toEqual([
        {
          pointer: '/retry_policy/schedule',
          detail: expect.stringMatching(
            /add up to 6 d, but .* given up after 3 d .* deadline of more than 6 d/,
          ),
        },
      ]);
    }
    const given = { ...retry_policy, deadline: '7d' };
    expect((await api.call('PATCH', `${path}/${made.json.id}`, { retry_policy: given })).json).toMatchObject({
      retry_policy: given,
      retry_schedule: { max_attempts: 4 },
    });
  });

  test('keeps what it is given, headers and certificates sealed', async () => {
    const authority = makeCertificate({ name: 'Test CA', authority: true });
    const client = makeCertificate({ name: 'client', issuer: authority });
    const pem = { cert: client.cert, key: client.key, ca: authority.cert };
    const given = {
      description: 'Zoë’s hook',
      event_types: ['a.b', 'c', 'a.b'],
      retry_policy: { schedule: ['5s', '1.5h'], deadline: '2d', retry_4xx: false },
      limits: { in_flight: 1000, timeout_ms: 30_000 },
      headers: { Authorization: 'Bearer very-secret', 'X-Team': 'blue' },
      tls: { client_certificate: pem.cert, client_key: pem.key, ca_bundle: pem.ca },
      traceparent: true,
      notify_emails: ['a@example.com'],
    };
    const { json, text } = await endpoint(given);
    const certificate = new X509Certificate(pem.cert);
    expect(json).toMatchObject({
      description: given.description,
      event_types: ['a.b', 'c'],
      retry_policy: given.retry_policy,
      limits: given.limits,
      headers: [
        { name: 'Authorization', length: 18 },
        { name: 'X-Team', length: 4 },
      ],
      tls: {
        client_certificate: {
          subject: certificate.subject,
          fingerprint_sha256: certificate.fingerprint256,
          expires_at: new Date(certificate.validTo).toISOString(),
        },
        ca_bundle: [{ fingerprint_sha256: new X509Certificate(pem.ca).fingerprint256 }],
      },
      traceparent: true,
      notify_emails: ['a@example.com'],
    });
    expect(text).not.toMatch(/very-secret|PRIVATE|BEGIN/);
    const { rows } = await api.db.query('select * from posthaste.endpoints where id = $1', [json.id]);
    expect(JSON.stringify(rows[0])).not.toMatch(/very-secret|PRIVATE/);
    expect(rows[0]).toMatchObject({ deadline_ms: 2 * 86_400_000, timeout_ms: 30_000 });
    const ready = await asSender(json.id);
    expect(ready.custom).toEqual(given.headers);
    expect(ready.tls).toMatchObject({ cert: pem.cert, key: pem.key, ca: pem.ca });
    expect(ready.policy).toMatchObject({ stepsMs: [5_000, 5_400_000], retry4xx: false });
    expect(ready.row.cap).toBe(1000);
  });

  test('takes a secret of the caller, and ed25519 with its public key', async () => {
    const secret = `whsec_${Buffer.alloc(64, 5).toString('base64')}`;
    expect((await endpoint({ secret })).json.secret).toBe(secret);
    const { json } = await endpoint({ secret_kind: 'ed25519' });
    expect(json).toMatchObject({
      secret_kind: 'ed25519',
      secret: expect.stringMatching(/^whsk_/),
      public_key: expect.stringMatching(/^whpk_/),
    });
    const known =
      'whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==';
    expect((await endpoint({ secret: known })).json.public_key).toBe(
      'whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=',
    );
  });

  test('is limited per tenant, for it makes us look at names', async () => {
    const tenant = await api.tenant();
    const answers = await Promise.all(
      Array.from({ length: 90 }, () =>
        api.call('POST', `/v1/tenants/${tenant}/endpoints`, { url: 'https://a.com' }),
      ),
    );
    const refused = answers.filter(({ status }) => status === 429);
    expect(answers.filter(({ status }) => status === 201).length).toBeGreaterThanOrEqual(60);
    expect(refused.length).toBeGreaterThan(5);
    expect(refused[0]!.json.code).toBe('rate_limited');
    expect(Number(refused[0]!.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    await endpoint(); // another tenant
  });
});

describe('change', () => {
  test('touches what it names only, and is a new revision', async () => {
    const { path, json } = await endpoint({
      headers: { 'x-a': 'b' },
      limits: { in_flight: 3 },
      event_types: ['a'],
    });
    const changed = await api.call('PATCH', path, { limits: { timeout_ms: 2_000 }, description: 'new' });
    expect(changed.status).toBe(200);
    const { secret: _, secret_id: __, secret_kind: ___, ...before } = json;
    expect(changed.json).toEqual({
      ...before,
      limits: { in_flight: 3, timeout_ms: 2_000, rate_per_second: null, catch_up_share: 0.1 },
      description: 'new',
      revision: 2,
      updated_at: expect.any(String),
    });
    const cleared = await api.call('PATCH', path, {
      headers: {},
      event_types: null,
      description: null,
      tls: null,
    });
    expect(cleared.json).toMatchObject({ headers: [], event_types: null, description: null, revision: 3 });
    expect((await asSender(json.id)).custom).toBeUndefined();
  });

  test('of the URL is held against the headers that are there', async () => {
    const { path, json } = await endpoint({ headers: { 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000) } });
    const long = `https://example.com/${'p'.repeat(1_500)}`;
    const refused = await api.call('PATCH', path, { url: long });
    expect([refused.status, refused.json.errors[0].pointer]).toEqual([422, '/url']);
    expect((await api.call('GET', path)).json.revision).toBe(json.revision);
    expect((await api.call('PATCH', path, { url: long, headers: {} })).status).toBe(200);
    expect(
      (await api.call('PATCH', path, { headers: { 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000) } })).json
        .errors[0].pointer,
    ).toBe('/headers/x-b');
  });

  test('of several at once loses none', async () => {
    for (let round = 0; round < 5; round++) {
      const { path } = await endpoint();
      const changes = [
        { description: 'd' },
        { traceparent: true },
        { limits: { in_flight: 7 } },
        { event_types: ['a'] },
      ];
      await Promise.all(changes.map((change) => api.call('PATCH', path, change)));
      expect((await api.call('GET', path)).json).toMatchObject({
        description: 'd',
        traceparent: true,
        limits: { in_flight: 7 },
        event_types: ['a'],
        revision: 5,
      });
    }
  });
});

describe('the end', () => {
  const due = async (id: string) =>
    (
      await api.db.query(
        'select count(*) as n from posthaste.work where endpoint = $1 and scan_at <= clock_timestamp()',
        [id],
      )
    ).rows[0].n;
  const later = (id: string) =>
    api.db.query(
      `update posthaste.work set scan_at = now() + interval '1 hour', due_at = now() + interval '1 hour', state = 'retrying' where endpoint = $1`,
      [id],
    );

  test('disable hands unfinished deliveries to the scanner, thousands at a time; enable opens it again', async () => {
    const { tenant, path, json } = await endpoint();
    await seedWork(api.db, tenant, json.id, 2_500);
    await later(json.id);
    const disabled = await api.call('POST', `${path}/disable`);
    expect(disabled.json).toMatchObject({ state: 'disabled', disabled_reason: 'operator', revision: 2 });
    expect(await due(json.id)).toBe(2_500);
    expect((await api.call('POST', `${path}/disable`)).json.revision).toBe(2);
    const since = disabled.json.disabled_at;
    expect(Date.parse(since)).toBeGreaterThan(Date.now() - 60_000);
    expect((await api.call('POST', `${path}/enable`)).json).toMatchObject({
      state: 'active',
      disabled_reason: null,
      disabled_at: null,
      revision: 3,
      missed_since: since,
      recover: { method: 'POST', path: `${path}/recover`, body: { missed: true } },
    });
    expect((await api.call('POST', `${path}/enable`)).json).toMatchObject({
      missed_since: null,
      recover: null,
    });
    expect((await api.call('GET', `/v1/tenants/${tenant}/endpoints?state=disabled`)).json.data).toEqual([]);
  });

  test('a deleted endpoint is not found, and its deliveries are handed to the scanner', async () => {
    const { tenant, path, json } = await endpoint();
    await seedWork(api.db, tenant, json.id, 3);
    await later(json.id);
    expect((await api.call('DELETE', path)).status).toBe(204);
    expect(await due(json.id)).toBe(3);
    for (const [method, rest] of [
      ['GET', ''],
      ['PATCH', ''],
      ['DELETE', ''],
      ['POST', '/enable'],
      ['POST', '/disable'],
      ['GET', '/secret'],
      ['POST', '/secret/rotate'],
    ]) {
      const answer = await api.call(method as string, path + rest, method === 'PATCH' ? {} : undefined);
      expect([rest, answer.status, answer.json.code]).toEqual([rest, 404, 'endpoint_not_found']);
    }
    expect((await api.call('GET', `/v1/tenants/${tenant}/endpoints`)).json.data).toEqual([]);
  });

  test("another tenant's endpoint is not found", async () => {
    const [{ json }, other] = [await endpoint(), await api.tenant()];
    for (const [method, rest] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/disable'],
      ['GET', '/secret'],
      ['POST', '/secret/rotate'],
    ]) {
      expect(
        (await api.call(method as string, `/v1/tenants/${other}/endpoints/${json.id}${rest}`)).status,
      ).toBe(404);
    }
  });
});
