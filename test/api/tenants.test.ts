/** Tenants: replaced by PUT, changed by PATCH, gone with everything unfinished by DELETE. */
import { expect, test } from 'vitest';
import { seedEndpoint, seedWork } from '../support/seed.ts';
import { rig } from './support.ts';

const api = rig();

test('PUT creates, then replaces; PATCH changes what it names', async () => {
  const path = '/v1/tenants/Acme.Inc:1_a-b';
  const made = await api.call('PUT', path, {
    name: 'Acme',
    notify_emails: ['ops@acme.example.com'],
    weight: 5,
  });
  expect([made.status, made.headers.get('location')]).toEqual([201, '/v1/tenants/Acme.Inc%3A1_a-b']);
  expect(made.json).toMatchObject({
    id: 'Acme.Inc:1_a-b',
    name: 'Acme',
    notify_emails: ['ops@acme.example.com'],
    weight: 5,
  });
  const patched = await api.call('PATCH', path, { weight: 7 });
  expect(patched.json).toMatchObject({ name: 'Acme', notify_emails: ['ops@acme.example.com'], weight: 7 });
  expect((await api.call('PATCH', path, { name: null, notify_emails: [] })).json).toMatchObject({
    name: null,
    notify_emails: [],
    weight: 7,
  });
  const replaced = await api.call('PUT', path, { name: 'New' });
  expect([replaced.status, replaced.json.name, replaced.json.weight]).toEqual([200, 'New', 1]);
  expect((await api.call('GET', path)).json).toEqual(replaced.json);
});

test('an absent body is an empty one', async () => {
  expect((await api.call('PUT', '/v1/tenants/bare')).status).toBe(201);
  expect((await api.call('PUT', '/v1/tenants/bare')).status).toBe(200);
});

test('simultaneous creation is one creation', async () => {
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => api.call('PUT', '/v1/tenants/race', {})),
  );
  expect(new Set(answers.map(({ json }) => json.created_at)).size).toBe(1);
  expect(answers.every(({ status }) => status === 201 || status === 200)).toBe(true);
});

test('a tenant gets a shard of its own by its id, and a place for its sequence', async () => {
  await Promise.all(Array.from({ length: 100 }, (_, n) => api.call('PUT', `/v1/tenants/shard${n}`, {})));
  const { rows } =
    await api.db.query(`select count(distinct shard) as shards, min(shard) as low, max(shard) as high,
    (select count(*) from posthaste.tenant_sequences where tenant like 'shard%') as sequences from posthaste.tenants where id like 'shard%'`);
  expect(rows[0].shards).toBeGreaterThan(12);
  expect(rows[0]).toMatchObject({ sequences: 100 });
  expect(rows[0].low >= 0 && rows[0].high <= 15).toBe(true);
});

test('lists page by id', async () => {
  for (const id of ['l1', 'l2', 'l3']) await api.call('PUT', `/v1/tenants/${id}`, {});
  const ids: string[] = [];
  for (let cursor = ''; ; ) {
    const { json } = await api.call('GET', `/v1/tenants?limit=2${cursor}`);
    ids.push(...json.data.map((tenant: { id: string }) => tenant.id));
    if (json.next_cursor === null) break;
    cursor = `&cursor=${json.next_cursor}`;
  }
  expect(ids).toEqual([...new Set(ids)].sort());
  expect(ids).toContain('l3');
});

test('a deleted tenant is gone for everyone, its work is due for the scanner, and its id can come back', async () => {
  const tenant = await api.tenant();
  const { id } = await seedEndpoint(api.db, tenant, { url: 'https://a.com/' });
  const deliveries = await seedWork(api.db, tenant, id, 3);
  await api.db.query(
    `update posthaste.work set due_at = now() + interval '1 hour', scan_at = now() + interval '1 hour', state = 'retrying' where tenant = $1`,
    [tenant],
  );
  expect((await api.call('DELETE', `/v1/tenants/${tenant}`)).status).toBe(204);
  expect((await api.call('DELETE', `/v1/tenants/${tenant}`)).status).toBe(404);
  for (const path of ['', '/events', '/endpoints', `/endpoints/${id}`, '/deliveries', '/dead-letters']) {
    expect([path, (await api.call('GET', `/v1/tenants/${tenant}${path}`)).status]).toEqual([path, 404]);
  }
  expect((await api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data: 1 })).status).toBe(404);
  const { rows } = await api.db.query(
    'select delivery from posthaste.work where tenant = $1 and scan_at <= clock_timestamp()',
    [tenant],
  );
  expect(rows.map((row) => row.delivery).toSorted()).toEqual(deliveries.toSorted());
  expect((await api.call('PUT', `/v1/tenants/${tenant}`, {})).status).toBe(201);
  expect((await api.call('GET', `/v1/tenants/${tenant}/endpoints`)).json.data).toEqual([]);
});

test('an endpoint made while its tenant is deleted does not outlive it', async () => {
  for (let round = 0; round < 10; round++) {
    const tenant = await api.tenant();
    const made = Array.from({ length: 6 }, () =>
      api.call('POST', `/v1/tenants/${tenant}/endpoints`, { url: 'https://a.com' }),
    );
    const [deleted] = await Promise.all([api.call('DELETE', `/v1/tenants/${tenant}`), ...made]);
    expect(deleted?.status).toBe(204);
    const { rows } = await api.db.query(
      `select count(*) as n from posthaste.endpoints where tenant = $1 and state <> 'deleted'`,
      [tenant],
    );
    expect(rows[0].n).toBe(0);
  }
});
