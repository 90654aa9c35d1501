/** endpoint/<id> in Temporal: what it shows, what people can do to it, and that losing it loses nothing. */
import { Client, Connection } from '@temporalio/client';
import { beforeAll, describe, expect, it } from 'vitest';
import { moveEndpoint } from '../../src/db/endpoint-states.ts';
import {
  type DeliveryState,
  deliveryWorkflowId,
  type EndpointReport,
  endpointWorkflowId,
} from '../../src/workflows/contract.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { keepHistory } from '../support/histories.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let client: Client;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const count = async (what: string, tenant: string): Promise<number> =>
  (await engine.db.query(`select count(*)::int as c from posthaste.${what} and tenant = $1`, [tenant]))
    .rows[0].c;
const held = (tenant: string) => count(`work where state = 'held'`, tenant);
const delivered = (tenant: string) => count(`deliveries where state = 'delivered'`, tenant);

/** A paused endpoint with `events` held deliveries, and its workflow. */
async function resting(tenant: string, events: number) {
  await seedTenant(engine.db, tenant);
  const receiver = await startReceiver();
  const { id } = await seedEndpoint(engine.db, tenant, { url: receiver.url });
  await moveEndpoint(engine.db, tenant, id, 'pause');
  await enqueueMany(engine.db, tenant, 'a.b', events);
  await until(
    () => held(tenant),
    (rows) => rows === events,
  );
  const handle = client.workflow.getHandle(endpointWorkflowId(id));
  const state = () => handle.query<EndpointReport | null>('state').catch(() => null);
  return { id, receiver, handle, state };
}

describe.concurrent('endpoint/<id>', () => {
  it('shows a paused endpoint, resumes it by update, and ends when nothing waits any more', async () => {
    const { id, receiver, handle, state } = await resting('shown', 12);
    const report = await until(state, (r) => r?.state === 'paused');
    expect(report).toMatchObject({ mode: 'pump', health: 'closed', nextProbeAt: null, rate: null });
    expect(receiver.requests).toHaveLength(0);
    expect(await handle.executeUpdate('resume')).toEqual({ state: 'active' });
    await receiver.waitFor(12);
    expect(await handle.result()).toEqual({ health: 'closed' });
    await keepHistory(client, 'endpoint-resumed', endpointWorkflowId(id));
    expect(
      (await engine.db.query('select workflow from posthaste.endpoint_health where endpoint = $1', [id]))
        .rows,
    ).toEqual([{ workflow: false }]);
    await receiver.close();
  });

  it('pauses by update, and is woken when the endpoint is resumed elsewhere', async () => {
    await seedTenant(engine.db, 'pausing');
    let release: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const receiver = await startReceiver({ respond: () => ({ status: 200, until: gate }) });
    const { id } = await seedEndpoint(engine.db, 'pausing', { url: receiver.url, cap: 1 });
    // One request hangs; who waits behind it for a second makes the endpoint one for the pump.
    await enqueueMany(engine.db, 'pausing', 'a.b', 10);
    const handle = client.workflow.getHandle(endpointWorkflowId(id));
    await until(
      () =>
        handle.query('state').then(
          () => true,
          () => false,
        ),
      (known) => known,
    );
    expect(await handle.executeUpdate('pause')).toEqual({ state: 'paused' });
    release();
    await until(
      () => delivered('pausing'),
      (rows) => rows >= 1,
    );
    expect(await held('pausing')).toBeGreaterThanOrEqual(8);
    await moveEndpoint(engine.db, null, id, 'resume');
    await until(
      () => delivered('pausing'),
      (rows) => rows === 10,
    );
    expect(receiver.requests).toHaveLength(10);
    expect(receiver.highWater()).toBe(1);
    await receiver.close();
  });

  it('that is terminated is started again when something is due, and nothing is lost or doubled', async () => {
    const { id, receiver, handle, state } = await resting('killed', 8);
    await until(state, (r) => r?.state === 'paused');
    await handle.terminate('a test');
    await moveEndpoint(engine.db, 'killed', id, 'resume');
    await until(
      () => delivered('killed'),
      (rows) => rows === 8,
    );
    expect(receiver.requests).toHaveLength(8);
    await receiver.close();
  });

  it('that is cancelled gives its endpoint to the scanner', async () => {
    const { id, receiver, handle, state } = await resting('let-go', 8);
    await until(state, (r) => r?.state === 'paused');
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow();
    await keepHistory(client, 'endpoint-cancelled-in-temporal', endpointWorkflowId(id));
    await moveEndpoint(engine.db, 'let-go', id, 'resume');
    await until(
      () => delivered('let-go'),
      (rows) => rows === 8,
    );
    await receiver.close();
  });

  it('has the deliveries of sleeping workflows sent, which name no time while held and end by reading their rows', async () => {
    await seedTenant(engine.db, 'released');
    const receiver = await startReceiver({ respond: (_request, n) => ({ status: n === 0 ? 500 : 200 }) });
    const { id } = await seedEndpoint(engine.db, 'released', {
      url: receiver.url,
      policy: { schedule: ['2s'] },
    });
    await enqueueMany(engine.db, 'released', 'a.b', 1);
    await receiver.waitFor(1);
    await moveEndpoint(engine.db, 'released', id, 'pause');
    await until(
      () => held('released'),
      (rows) => rows === 1,
    );
    const row = (
      await engine.db.query(`select delivery, workflow from posthaste.work where tenant = 'released'`)
    ).rows[0];
    expect(row.workflow).toBe(true);
    const sleeper = client.workflow.getHandle(deliveryWorkflowId(row.delivery));
    const shown = await until(
      () => sleeper.query<DeliveryState>('state'),
      ({ state }) => state === 'held',
    );
    expect(shown).toMatchObject({ attempts: 1, nextAttemptAt: null });
    await moveEndpoint(engine.db, 'released', id, 'resume');
    await receiver.waitFor(2);
    expect(await sleeper.result()).toEqual({
      state: 'delivered',
      attempts: 2,
    });
    await keepHistory(client, 'delivery-held-and-released', deliveryWorkflowId(row.delivery));
    await receiver.close();
  });
});

describe('400 endpoints in mode pump at once', () => {
  it('are all served, those beyond the budget of workflows in groups', async () => {
    await seedTenant(engine.db, 'crowd');
    const receiver = await startReceiver();
    const ids: string[] = [];
    for (let i = 0; i < 400; i++)
      ids.push((await seedEndpoint(engine.db, 'crowd', { url: `${receiver.url}/${i}` })).id);
    await engine.db.query(
      `update posthaste.endpoint_state set mode = 'pump', epoch = epoch + 1 where endpoint = any ($1)`,
      [ids],
    );
    await enqueueMany(engine.db, 'crowd', 'a.b', 2);
    await until(
      () => delivered('crowd'),
      (rows) => rows === 800,
      120_000,
    );
    expect(receiver.requests).toHaveLength(800);
    await receiver.close();
  }, 130_000);
});
