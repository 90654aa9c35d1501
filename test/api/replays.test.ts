/** Replays over HTTP, without an engine: what is refused, what a new one looks like, how it is listed and cancelled. */
import { describe, expect, test } from 'vitest';
import { newId } from '../../src/ids.ts';
import { seedEndpoint } from '../support/seed.ts';
import { rig } from './support.ts';

let scans = 0;
const api = rig({
  scan: () => {
    scans++;
  },
});

async function setUp() {
  const tenant = await api.tenant();
  const { id: endpoint } = await seedEndpoint(api.db, tenant, { url: 'https://a.com/' });
  return { tenant, endpoint, path: `/v1/tenants/${tenant}` };
}
const since = '2026-01-01T00:00:00Z';

describe('a replay', () => {
  test('answers 202 with itself and where it is, and tells the scanner', async () => {
    const { tenant, endpoint, path } = await setUp();
    const before = scans;
    const made = await api.call('POST', `${path}/endpoints/${endpoint}/recover`, { since, missed: true });
    expect(made.status).toBe(202);
    expect(made.json).toEqual({
      id: expect.stringMatching(/^rpl_/),
      action: 'resend',
      source: 'deliveries',
      filter: { endpoint, states: ['dead', 'cancelled'], since: '2026-01-01T00:00:00.000Z' },
      missed: true,
      rate: 50,
      state: 'running',
      reason: null,
      total: null,
      moved: 0,
      made: 0,
      skipped: 0,
      waiting: false,
      eta: null,
      created_at: expect.any(String),
      updated_at: expect.any(String),
      finished_at: null,
    });
    expect(made.headers.get('location')).toBe(`/v1/tenants/${tenant}/replays/${made.json.id}`);
    expect(scans).toBe(before + 1);
    expect((await api.call('GET', `${path}/replays/${made.json.id}`)).json).toEqual(made.json);
  });

  test('is cancelled once and for all', async () => {
    const { path } = await setUp();
    const { json } = await api.call('POST', `${path}/deliveries/cancel`, { filter: {} });
    expect(json).toMatchObject({
      action: 'cancel',
      filter: { states: ['ready', 'sending', 'retrying', 'held'] },
    });
    const cancelled = await api.call('POST', `${path}/replays/${json.id}/cancel`);
    expect([cancelled.status, cancelled.json]).toMatchObject([
      200,
      { state: 'cancelled', finished_at: expect.any(String) },
    ]);
    expect((await api.call('POST', `${path}/replays/${json.id}/cancel`)).json).toEqual(cancelled.json);
  });

  test('of another tenant is not found', async () => {
    const { path } = await setUp();
    const { json } = await api.call('POST', `${path}/deliveries/resend`, { filter: {} });
    const other = await setUp();
    for (const [method, rest] of [
      ['GET', ''],
      ['POST', '/cancel'],
    ]) {
      const answer = await api.call(method!, `${other.path}/replays/${json.id}${rest}`);
      expect([answer.status, answer.json.code]).toEqual([404, 'replay_not_found']);
    }
    expect((await api.call('GET', `${other.path}/replays`)).json).toEqual({ data: [], next_cursor: null });
    expect((await api.call('GET', `${path}/replays/${json.id}`)).json.state).toBe('running');
  });

  test('is listed newest first, by state and endpoint', async () => {
    const { endpoint, path } = await setUp();
    const ids: string[] = [];
    for (const filter of [{}, { endpoint }, {}])
      ids.unshift((await api.call('POST', `${path}/dead-letters/replay`, { filter })).json.id);
    const walk = async (query: string) => {
      const seen: string[] = [];
      for (let cursor = ''; ; ) {
        const { json } = await api.call('GET', `${path}/replays?limit=1&${query}${cursor}`);
        seen.push(...json.data.map((row: { id: string }) => row.id));
        if (json.next_cursor === null) return seen;
        cursor = `&cursor=${json.next_cursor}`;
      }
    };
    expect(await walk('')).toEqual(ids.toSorted().toReversed());
    expect(await walk(`endpoint=${endpoint}`)).toEqual([ids[1]]);
    await api.call('POST', `${path}/replays/${ids[0]}/cancel`);
    expect(await walk('state=cancelled')).toEqual([ids[0]]);
  });
});

describe('what can not be replayed', () => {
  test.each([
    ['deliveries/resend', {}, '/filter'],
    ['deliveries/resend', { filter: { state: 'lost' } }, '/filter/state'],
    ['deliveries/resend', { filter: { since: 'yesterday' } }, '/filter/since'],
    ['deliveries/resend', { filter: { since, until: since } }, '/filter/until'],
    ['deliveries/resend', { filter: {}, rate: 0 }, '/rate'],
    ['deliveries/cancel', { filter: { state: 'dead' } }, '/filter/state'],
    ['deliveries/cancel', { filter: {}, rate: 5 }, '/rate'],
    ['dead-letters/replay', { filter: { status: 500 } }, '/filter/status'],
  ])('%s %j is refused by the name of its field', async (rest, body, pointer) => {
    const { path } = await setUp();
    const answer = await api.call('POST', `${path}/${rest}`, body);
    expect([answer.status, answer.json.code]).toEqual([422, 'invalid_fields']);
    expect(answer.json.errors.map((error: { pointer: string }) => error.pointer)).toContain(pointer);
  });

  test('an endpoint that is unknown, another tenant’s, or disabled', async () => {
    const { tenant, endpoint, path } = await setUp();
    const other = await setUp();
    for (const id of [newId('ep'), other.endpoint]) {
      const recover = await api.call('POST', `${path}/endpoints/${id}/recover`, { since });
      expect([recover.status, recover.json.code]).toEqual([404, 'endpoint_not_found']);
      const resend = await api.call('POST', `${path}/deliveries/resend`, { filter: { endpoint: id } });
      expect([resend.status, resend.json.code]).toEqual([404, 'endpoint_not_found']);
    }
    await api.call('POST', `/v1/tenants/${tenant}/endpoints/${endpoint}/disable`);
    const disabled = await api.call('POST', `${path}/endpoints/${endpoint}/recover`, { since });
    expect([disabled.status, disabled.json.code]).toEqual([409, 'endpoint_disabled']);
    expect((await api.call('POST', '/v1/tenants/nobody/deliveries/resend', { filter: {} })).json.code).toBe(
      'tenant_not_found',
    );
  });

  test('a delivery whose event is no longer kept: 410', async () => {
    const { tenant, endpoint, path } = await setUp();
    const id = newId('dlv');
    await api.db.query(
      `insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at, kind, state, n, burned, generation)
       values ($1, $2, $3, 'evt_gone', now(), 'x', 1, posthaste.id_at($1), now(), 'live', 'delivered', 1, 1, 1)`,
      [id, tenant, endpoint],
    );
    const answer = await api.call('POST', `${path}/deliveries/${id}/resend`);
    expect([answer.status, answer.json.code]).toEqual([410, 'event_expired']);
    expect((await api.call('GET', `${path}/deliveries/${id}`)).json.state).toBe('delivered');
  });
});
