/** Rotation of signing secrets: no gap, no more than five, and nothing lives longer than it was promised. */
import { describe, expect, test } from 'vitest';
import { prepareEndpoint } from '../../src/activities/prepare.ts';
import { loadEndpoints } from '../../src/db/load.ts';
import { purgeExpiredSecrets } from '../../src/db/secrets.ts';
import { formatSecret } from '../../src/egress/sign.ts';
import { masterKeys } from '../support/seed.ts';
import { rig } from './support.ts';

const api = rig();
const HOUR = 3_600_000;

async function endpoint(fields: object = {}) {
  const tenant = await api.tenant();
  const { json } = await api.call('POST', `/v1/tenants/${tenant}/endpoints`, {
    url: 'https://a.com',
    ...fields,
  });
  const path = `/v1/tenants/${tenant}/endpoints/${json.id}`;
  return {
    id: json.id as string,
    path,
    secret: json.secret as string,
    rotate: (body?: object) => api.call('POST', `${path}/secret/rotate`, body),
  };
}

/** What signs the next attempt, as the sender reads it, newest first. */
async function signing(id: string): Promise<string[]> {
  return prepareEndpoint((await loadEndpoints(api.db, [id]))[0]!, masterKeys).secrets.map(formatSecret);
}

test('the current secret can be read again', async () => {
  const { path, secret } = await endpoint();
  const { json } = await api.call('GET', `${path}/secret`);
  expect(json).toEqual({
    secret_id: expect.stringMatching(/^sec_/),
    secret,
    secret_kind: 'hmac',
    created_at: expect.any(String),
    previous: [],
  });
});

describe('rotation', () => {
  test('lets the old secret sign for 24 h beside the new one, from the next attempt on', async () => {
    const { id, path, secret, rotate } = await endpoint();
    const { status, json } = await rotate();
    expect(status).toBe(200);
    expect(json.secret).not.toBe(secret);
    expect(await signing(id)).toEqual([json.secret, secret]);
    const expiry = Date.parse(json.previous[0].expires_at);
    expect(Math.abs(expiry - Date.now() - 24 * HOUR)).toBeLessThan(60_000);
    expect((await api.call('GET', path)).json.revision).toBe(2);
    expect((await api.call('GET', `${path}/secret`)).json).toEqual(json);
  });

  test('takes a grace in seconds or as a duration', async () => {
    const { rotate } = await endpoint();
    await rotate({ grace: 60 });
    const { json } = await rotate({ grace: '48h' });
    const left = json.previous.map((each: { expires_at: string }) =>
      Math.round((Date.parse(each.expires_at) - Date.now()) / 1_000 / 10),
    );
    expect(left).toEqual([17_280, 6]);
  });

  test('with grace 0 cuts the replaced secret at once and leaves older ones their grace', async () => {
    const { id, secret, rotate } = await endpoint();
    await rotate();
    const { json } = await rotate({ grace: 0 });
    expect(await signing(id)).toEqual([json.secret, secret]);
  });

  test('keeps five signing at most: a sixth is a conflict that names the oldest expiry', async () => {
    const { id, rotate } = await endpoint();
    for (let n = 0; n < 4; n++) expect((await rotate({ grace: 3600 + n })).status).toBe(200);
    const before = await signing(id);
    expect(before).toHaveLength(5);
    const refused = await rotate();
    expect([refused.status, refused.json.code]).toEqual([409, 'too_many_secrets']);
    expect(Math.abs(Date.parse(refused.json.oldest_expires_at) - Date.now() - HOUR)).toBeLessThan(60_000);
    expect(await signing(id)).toEqual(before);
    const forced = await rotate({ expire_oldest: true });
    expect(await signing(id)).toEqual([forced.json.secret, ...before.slice(0, 4)]);
    expect((await rotate({ grace: 0 })).status).toBe(200); // it replaces one, so five stay five
    expect(await signing(id)).toHaveLength(5);
  });

  test('of many at once leaves one current secret and at most five', async () => {
    const { id, rotate } = await endpoint();
    const answers = await Promise.all(Array.from({ length: 12 }, () => rotate()));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(4);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(8);
    expect(await signing(id)).toHaveLength(5);
    const { rows } = await api.db.query(
      'select count(*) as n from posthaste.endpoint_secrets where endpoint = $1 and expires_at is null',
      [id],
    );
    expect(rows[0].n).toBe(1);
  });

  test('takes a secret of the caller, and changes the kind when asked', async () => {
    const { id, secret, rotate } = await endpoint();
    const own = `whsec_${Buffer.alloc(24, 9).toString('base64')}`;
    expect((await rotate({ secret: own })).json.secret).toBe(own);
    const { json } = await rotate({ kind: 'ed25519' });
    expect(json).toMatchObject({ secret_kind: 'ed25519', public_key: expect.stringMatching(/^whpk_/) });
    expect((await rotate()).json.secret_kind).toBe('ed25519');
    expect(await signing(id)).toEqual(expect.arrayContaining([secret, own, json.secret]));
  });

  test.each([
    ['a secret it has already', (secret: string) => ({ secret }), '/secret'],
    ['a short secret', () => ({ secret: `whsec_${Buffer.alloc(23).toString('base64')}` }), '/secret'],
    ['a long secret', () => ({ secret: `whsec_${Buffer.alloc(65).toString('base64')}` }), '/secret'],
    [
      'a secret of another kind',
      () => ({ kind: 'ed25519', secret: `whsec_${Buffer.alloc(32).toString('base64')}` }),
      '/kind',
    ],
    ['a negative grace', () => ({ grace: -1 }), '/grace'],
    ['a grace in words', () => ({ grace: 'a day' }), '/grace'],
    ['a grace of a year', () => ({ grace: '365d' }), '/grace'],
    ['an unknown kind', () => ({ kind: 'rsa' }), '/kind'],
  ])('refuses %s and changes nothing', async (_, body, pointer) => {
    const { id, secret, rotate } = await endpoint();
    const { status, json } = await rotate(body(secret));
    expect([status, json.errors?.[0].pointer]).toEqual([422, pointer]);
    expect(await signing(id)).toEqual([secret]);
  });
});

test('a secret past its grace signs no more, makes room, and is purged', async () => {
  const { id, rotate } = await endpoint();
  for (let n = 0; n < 4; n++) await rotate();
  const current = (await signing(id))[0];
  await api.db.query(
    `update posthaste.endpoint_secrets set expires_at = now() - interval '1 second' where endpoint = $1 and expires_at is not null`,
    [id],
  );
  expect(await signing(id)).toEqual([current]);
  const others = await endpoint();
  await others.rotate();
  expect(await purgeExpiredSecrets(api.db)).toBe(4);
  expect(await purgeExpiredSecrets(api.db)).toBe(0);
  expect(await signing(others.id)).toHaveLength(2);
  expect((await rotate()).status).toBe(200);
});

test('secrets are sealed at rest, each bound to its own row', async () => {
  const { id, secret } = await endpoint();
  const other = await endpoint();
  const { rows } = await api.db.query('select * from posthaste.endpoint_secrets where endpoint = $1', [id]);
  expect(rows[0].key_id).toBe(masterKeys.ids[0]);
  expect(rows[0].sealed.includes(secret.slice(6))).toBe(false);
  await api.db.query('update posthaste.endpoint_secrets set sealed = $2 where endpoint = $1', [
    other.id,
    rows[0].sealed,
  ]);
  await expect(signing(other.id)).rejects.toThrow(/does not open/);
});
