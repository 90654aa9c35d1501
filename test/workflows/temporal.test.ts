/** What people can do to workflows in Temporal: terminate, cancel, reset, signal, update. The delivery ends rightly. */
import { Client, Connection } from '@temporalio/client';
import { beforeAll, describe, expect, it } from 'vitest';
import { type DispatchResult, deliveryWorkflowId } from '../../src/workflows/contract.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { keepHistory } from '../support/histories.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let client: Client;
const keep = (shape: string, workflowId: string) => keepHistory(client, shape, workflowId);

beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const work = async (tenant: string) =>
  (await engine.db.query('select * from posthaste.work where tenant = $1', [tenant])).rows[0];
const final = async (tenant: string) =>
  (await engine.db.query('select * from posthaste.deliveries where tenant = $1', [tenant])).rows[0];

/** One delivery whose first attempt failed and which now sleeps in its workflow. */
async function sleeping(
  tenant: string,
  schedule: string[],
): Promise<{ delivery: string; receiver: TestReceiver }> {
  await seedTenant(engine.db, tenant);
  const receiver = await startReceiver({ respond: (_request, n) => ({ status: n === 0 ? 500 : 200 }) });
  await seedEndpoint(engine.db, tenant, { url: receiver.url, policy: { schedule } });
  await enqueueMany(engine.db, tenant, 'a.b', 1);
  const row = await until(
    () => work(tenant),
    (r) => r?.state === 'retrying',
  );
  // The row is written before the workflow hears of it, and before a failed member of a group gets its workflow.
  const asleep = (): Promise<string> =>
    client.workflow
      .getHandle(deliveryWorkflowId(row.delivery))
      .query<{ state: string }>('state')
      .then(
        ({ state }) => state,
        (error: Error) => error.message,
      );
  await until(asleep, (state) => state === 'retrying', 30_000);
  return { delivery: row.delivery, receiver };
}

describe.concurrent('a sleeping delivery/<id>', () => {
  it('that is terminated is delivered all the same, once', async () => {
    const { delivery, receiver } = await sleeping('terminated', ['3s', '3s']);
    await client.workflow.getHandle(deliveryWorkflowId(delivery)).terminate('a test');
    await until(
      () => final('terminated'),
      (row) => row?.state === 'delivered',
      60_000,
    );
    expect(receiver.requests).toHaveLength(2);
    await receiver.close();
  }, 70_000);

  it('that is cancelled gives its delivery back to the scanner, and it is delivered once', async () => {
    const { delivery, receiver } = await sleeping('cancelled', ['3s', '3s']);
    const handle = client.workflow.getHandle(deliveryWorkflowId(delivery));
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow();
    await keep('delivery-cancelled-in-temporal', deliveryWorkflowId(delivery));
    await until(
      () => final('cancelled'),
      (row) => row?.state === 'delivered',
      60_000,
    );
    expect(receiver.requests).toHaveLength(2);
    await receiver.close();
  }, 70_000);

  it('that is reset reads its row and goes on, sending nothing twice', async () => {
    const { delivery, receiver } = await sleeping('reset', ['4s', '4s']);
    const workflowId = deliveryWorkflowId(delivery);
    await client.workflowService.resetWorkflowExecution({
      namespace: engine.config.temporal.namespace,
      workflowExecution: { workflowId },
      reason: 'a test',
      workflowTaskFinishEventId: 4 as never,
      requestId: `reset-${delivery}`,
    });
    await until(
      () => final('reset'),
      (row) => row?.state === 'delivered',
      60_000,
    );
    expect(receiver.requests).toHaveLength(2);
    await receiver.close();
  }, 70_000);

  it('answers its state, and an update tries it again now', async () => {
    const { delivery, receiver } = await sleeping('updated', ['1h', '1h']);
    const handle = client.workflow.getHandle(deliveryWorkflowId(delivery));
    expect(await handle.query('state')).toMatchObject({
      state: 'retrying',
      attempts: 1,
      lastStatus: 500,
      lastClass: 'http_5xx',
    });
    expect(await handle.executeUpdate('resend')).toMatchObject({ attempts: 1 });
    expect(await handle.result()).toEqual({ state: 'delivered', attempts: 2 });
    await keep('delivery-resent-by-update', deliveryWorkflowId(delivery));
    expect(receiver.requests).toHaveLength(2);
    await receiver.close();
  }, 30_000);

  it('is cancelled by an update, and stays cancelled', async () => {
    const { delivery, receiver } = await sleeping('stopped', ['1h', '1h']);
    const handle = client.workflow.getHandle(deliveryWorkflowId(delivery));
    expect(await handle.executeUpdate('cancel')).toMatchObject({ state: 'cancelled' });
    expect(await handle.result()).toEqual({ state: 'cancelled', attempts: 1 });
    await keep('delivery-cancelled-by-update', deliveryWorkflowId(delivery));
    expect(await final('stopped')).toMatchObject({ state: 'cancelled', reason: 'requested' });
    expect(receiver.requests).toHaveLength(1);
    await receiver.close();
  }, 30_000);
});

describe('a dead letter', () => {
  it('fails its workflow as DeadLettered, and a replay signal with start sends it again', async () => {
    await seedTenant(engine.db, 'letter');
    const receiver = await startReceiver({ respond: () => ({ status: 500 }) });
    await seedEndpoint(engine.db, 'letter', { url: receiver.url, policy: { schedule: ['10ms'] } });
    await enqueueMany(engine.db, 'letter', 'a.b', 1);
    const dead = await until(
      () => final('letter'),
      (row) => row?.state === 'dead',
    );
    const handle = client.workflow.getHandle(deliveryWorkflowId(dead.id));
    await expect(handle.result()).rejects.toMatchObject({ cause: { type: 'DeadLettered' } });
    await keep('delivery-dead', deliveryWorkflowId(dead.id));
    receiver.respond(() => ({ status: 200 }));
    const again = await client.workflow.signalWithStart('delivery', {
      workflowId: deliveryWorkflowId(dead.id),
      taskQueue: 'posthaste',
      args: [{ deliveryId: dead.id, generation: 2 }],
      signal: 'replay',
      signalArgs: [],
    });
    expect(await again.result()).toEqual({ state: 'delivered', attempts: 3 });
    await keep('delivery-replayed-by-signal', deliveryWorkflowId(dead.id));
    expect(await final('letter')).toMatchObject({ state: 'delivered', generation: 2, n: 3 });
    await receiver.close();
  }, 30_000);
});

describe('a delivery in the Web UI', () => {
  it('carries a summary and search attributes, and no body, URL or secret in its history', async () => {
    const { delivery, receiver } = await sleeping('visible', ['1h', '1h']);
    const handle = client.workflow.getHandle(deliveryWorkflowId(delivery));
    const described = await handle.describe();
    expect(await described.staticSummary()).toContain('a.b → ep_');
    const history = JSON.stringify(await handle.fetchHistory());
    expect(history).not.toContain(receiver.url);
    for (const secret of ['127.0.0.1', 'whsec_', '"n":0']) {
      expect(history).not.toContain(secret);
      expect(history).not.toContain(Buffer.from(secret).toString('base64').replace(/=+$/, ''));
    }
    const found = async () => {
      const rows: string[] = [];
      for await (const row of client.workflow.list({
        query: `WhTenant = 'visible' and WhState = 'retrying'`,
      }))
        rows.push(row.workflowId);
      return rows;
    };
    expect(await until(found, (rows) => rows.length === 1)).toEqual([deliveryWorkflowId(delivery)]);
    await keep('delivery-sleeping', deliveryWorkflowId(delivery));
    await receiver.close();
  }, 30_000);
});

describe('the plain shapes', () => {
  it('are a delivered delivery/<id>, one that slept in between, and a dispatch/<id> group', async () => {
    await seedTenant(engine.db, 'plain');
    const receiver = await startReceiver();
    await seedEndpoint(engine.db, 'plain', { url: receiver.url });
    await enqueueMany(engine.db, 'plain', 'a.b', 1);
    const row = await until(
      () => final('plain'),
      (r) => r?.state === 'delivered',
    );
    const handle = client.workflow.getHandle(deliveryWorkflowId(row.id));
    expect(await handle.result()).toEqual({ state: 'delivered', attempts: 1 });
    await keep('delivery-delivered', deliveryWorkflowId(row.id));

    const slept = await sleeping('slept', ['2s']);
    expect(await client.workflow.getHandle(deliveryWorkflowId(slept.delivery)).result()).toEqual({
      state: 'delivered',
      attempts: 2,
    });
    await keep('delivery-retried', deliveryWorkflowId(slept.delivery));

    await enqueueMany(engine.db, 'plain', 'a.b', 200);
    await receiver.waitFor(201);
    const groups = async () => {
      const clean: string[] = [];
      const query = `WorkflowType = 'dispatch' and ExecutionStatus = 'Completed'`;
      for await (const { workflowId } of client.workflow.list({ query })) {
        const result = (await client.workflow.getHandle(workflowId).result()) as DispatchResult;
        if (result.delivered > 0 && result.failed === 0 && result.left === 0) clean.push(workflowId);
      }
      return clean;
    };
    const [group] = await until(groups, (ids) => ids.length > 0);
    await keep('dispatch-completed', group!);
    await Promise.all([receiver.close(), slept.receiver.close()]);
  }, 30_000);
});
