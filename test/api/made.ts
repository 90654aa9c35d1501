/** Deliveries and attempts made in the database as a relay and a worker would, for tests of what the API shows. */
import { expect } from 'vitest';
import { type AttemptRecord, type ClaimAnswer, record } from '../../src/db/verbs.ts';
import { newId } from '../../src/ids.ts';
import { claim } from '../support/claim.ts';
import { seedEndpoint, seedWork } from '../support/seed.ts';
import type { Rig } from './support.ts';

export const RETRYING = { outcome: 'retrying', status: 503, class: 'http_503' } as const;
export const DEAD = { outcome: 'dead', reason: 'max_attempts', status: 400, class: 'http_4xx' } as const;

/** A delivered attempt, unless changed. */
export function recordOf(endpoint: string, { delivery, token, n }: ClaimAnswer): AttemptRecord {
  return {
    id: newId('att'),
    delivery,
    endpoint,
    token: token!,
    n: n!,
    outcome: 'delivered',
    reason: null,
    due_at: null,
    step: 0,
    burned: 1,
    workflow: false,
    started_at: Date.now(),
    duration_ms: 12.5,
    status: 200,
    class: 'ok',
    phase: 'headers',
    error: null,
    request_url: 'https://a.com/hook',
    request_headers: '[["host","a.com"],["x-key","[9 characters]"]]',
    request_bytes: 2,
    head_bytes: 400,
    response_headers: '[["content-type","text/plain"]]',
    response_body: Buffer.from('thanks'),
    response_truncated: false,
    fresh_retry: false,
    rule: null,
    own_due_at: null,
    retry_after_s: null,
    health: 'ok',
    epoch: 1,
    revision: 1,
    pause_until: null,
  };
}

export function maker(api: Rig) {
  /** Makes an attempt of each delivery as a worker would, with this outcome. */
  async function attempt(
    endpoint: string,
    deliveries: string[],
    change: Partial<AttemptRecord> = {},
  ): Promise<void> {
    const { rows } = await api.db.query(
      'select delivery, generation, n from posthaste.work where delivery = any ($1)',
      [deliveries],
    );
    const granted = await claim(api.db, rows);
    expect(granted.map(({ verdict }) => verdict)).toEqual(rows.map(() => 'granted'));
    await record(
      api.db,
      granted.map((claimed) => ({ ...recordOf(endpoint, claimed), ...change })),
    );
  }

  async function setUp(count: number) {
    const tenant = await api.tenant();
    const { id: endpoint } = await seedEndpoint(api.db, tenant, { url: 'https://a.com/hook', cap: 1000 });
    const deliveries = (await seedWork(api.db, tenant, endpoint, count)).toSorted();
    // As the fan-out would have written it: an event is found by its exact time.
    await api.db.query(
      `update posthaste.work w set event_at = v.created_at from posthaste.events v where v.tenant = w.tenant and v.id = w.event and w.tenant = $1`,
      [tenant],
    );
    return { tenant, endpoint, deliveries, path: `/v1/tenants/${tenant}/deliveries` };
  }
  return { attempt, setUp };
}
