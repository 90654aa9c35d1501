/** Operators who act while a request is under way, by every way in: the request is not repeated, the schedule is kept. */
import { Client, Connection } from '@temporalio/client';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  cancelUpdate,
  type DeliveryWorkflow,
  deliveryWorkflowId,
  replaySignal,
  resendUpdate,
} from '../../src/temporal-client/index.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { keepHistory } from '../support/histories.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
let client: Client;
let url: string;
beforeAll(async () => {
  engine = await prepareEngine();
  url = (await engine.start(['api', 'relay', 'worker'])).url!;
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const api = (tenant: string, delivery: string, act: 'resend' | 'cancel') =>
  fetch(`${url}/v1/tenants/${tenant}/deliveries/${delivery}/${act}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_KEY}` },
  });
const handleOf = (delivery: string) =>
  client.workflow.getHandle<DeliveryWorkflow>(deliveryWorkflowId(delivery));
const signalWithStart = (delivery: string) =>
  client.workflow.signalWithStart<DeliveryWorkflow, []>('delivery', {
    workflowId: deliveryWorkflowId(delivery),
    taskQueue: 'posthaste',
    args: [{ deliveryId: delivery, generation: 1 }],
    signal: replaySignal,
    signalArgs: [],
  });

/** A delivery whose request waits at the receiver for `answer`. */
async function underWay(tenant: string, status: number, schedule = ['1h', '1h']) {
  await seedTenant(engine.db, tenant);
  const gate = Promise.withResolvers<void>();
  const receiver = await startReceiver({
    respond: (_request, n) => ({ status, ...(n === 0 ? { until: gate.promise } : {}) }),
  });
  await seedEndpoint(engine.db, tenant, { url: receiver.url, policy: { schedule } });
  await enqueueMany(engine.db, tenant, 'a.b', 1);
  await receiver.waitFor(1);
  const { delivery } = (
    await engine.db.query('select delivery from posthaste.work where tenant = $1', [tenant])
  ).rows[0];
  return { delivery: delivery as string, receiver, answer: () => gate.resolve() };
}

const stands = async (delivery: string) =>
  (
    await engine.db.query(
      `select state, n, generation, step from posthaste.work where delivery = $1
       union all select state, n, generation, null from posthaste.deliveries where id = $1`,
      [delivery],
    )
  ).rows[0];

describe('an operator who asks again while the request is under way', () => {
  it.each([
    ['the API', (tenant: string, delivery: string) => api(tenant, delivery, 'resend')],
    ['an update', (_: string, delivery: string) => handleOf(delivery).executeUpdate(resendUpdate)],
    ['a signal', (_: string, delivery: string) => handleOf(delivery).signal(replaySignal)],
    ['a signal with start', (_: string, delivery: string) => signalWithStart(delivery)],
  ])(
    'through %s gets the one that is: no second request after a 2xx',
    async (name, ask) => {
      const tenant = `asks-${name.replaceAll(' ', '-')}`;
      const { delivery, receiver, answer } = await underWay(tenant, 200);
      await ask(tenant, delivery);
      answer();
      await handleOf(delivery).result();
      expect(await stands(delivery)).toMatchObject({ state: 'delivered', n: 1, generation: 1 });
      expect(receiver.requests).toHaveLength(1);
      if (name === 'a signal')
        await keepHistory(client, 'delivery-replay-while-sending', deliveryWorkflowId(delivery));
      await receiver.close();
    },
    60_000,
  );

  it('and after a failure finds the schedule as it was', async () => {
    const { delivery, receiver, answer } = await underWay('fails', 503);
    await Promise.all([
      api('fails', delivery, 'resend'),
      handleOf(delivery).executeUpdate(resendUpdate),
      handleOf(delivery).signal(replaySignal),
    ]);
    answer();
    await until(
      () => handleOf(delivery).query<{ state: string }>('state'),
      ({ state }) => state === 'retrying',
    );
    expect(await stands(delivery)).toMatchObject({ state: 'retrying', n: 1, generation: 1, step: 1 });
    expect(receiver.requests).toHaveLength(1);
    await api('fails', delivery, 'cancel');
    await receiver.close();
  }, 60_000);
});

describe('an operator who cancels while the request is under way', () => {
  it.each([
    ['a 2xx', 200, 'delivered'],
    ['a failure', 503, 'cancelled'],
  ])(
    'gets what %s makes of it',
    async (name, status, state) => {
      const tenant = `cancels-${name.replaceAll(' ', '-')}`;
      const { delivery, receiver, answer } = await underWay(tenant, status);
      expect(await handleOf(delivery).executeUpdate(cancelUpdate)).toMatchObject({ state: 'sending' });
      answer();
      expect(await handleOf(delivery).result()).toEqual({ state, attempts: 1 });
      expect(receiver.requests).toHaveLength(1);
      await receiver.close();
    },
    60_000,
  );

  it('and then asks again has withdrawn the cancel', async () => {
    const { delivery, receiver, answer } = await underWay('withdraws', 503);
    await api('withdraws', delivery, 'cancel');
    await api('withdraws', delivery, 'resend');
    answer();
    await until(
      () => stands(delivery),
      (row) => row.state !== 'sending',
    );
    expect(await stands(delivery)).toMatchObject({ state: 'retrying', n: 1 });
    await api('withdraws', delivery, 'cancel');
    await receiver.close();
  }, 60_000);
});

describe('operators at random instants', () => {
  it('never have two requests of a delivery under way, and each request is an attempt in the log', async () => {
    const tenant = 'random';
    await seedTenant(engine.db, tenant);
    const open = new Map<string, number>();
    let overlapping = 0;
    const receiver = await startReceiver({
      async respond({ webhookId }) {
        open.set(webhookId, (open.get(webhookId) ?? 0) + 1);
        overlapping = Math.max(overlapping, open.get(webhookId)!);
        await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 60));
        open.set(webhookId, open.get(webhookId)! - 1);
        return { status: Math.random() < 0.6 ? 503 : 200 };
      },
    });
    await seedEndpoint(engine.db, tenant, {
      url: receiver.url,
      policy: { schedule: ['300ms', '1s', '1h'] },
      cap: 20,
    });
    await enqueueMany(engine.db, tenant, 'a.b', 40);
    await receiver.waitFor(20);
    const { rows } = await engine.db.query(
      `select delivery from posthaste.work where tenant = $1 union select id from posthaste.deliveries where tenant = $1`,
      [tenant],
    );
    const deliveries: string[] = rows.map((row) => row.delivery);
    const pick = () => deliveries[Math.floor(Math.random() * deliveries.length)]!;
    const actions = [
      () => api(tenant, pick(), 'resend'),
      () => api(tenant, pick(), 'resend'),
      () => api(tenant, pick(), 'cancel'),
      () => signalWithStart(pick()),
      () =>
        handleOf(pick())
          .executeUpdate(resendUpdate)
          .catch(() => {}), // it may have none
    ];
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        for (let n = 0; n < 50; n++) await actions[Math.floor(Math.random() * actions.length)]!();
      }),
    );
    // Again and again: a signal that was sent before may take effect after a cancel.
    const left = async () => {
      const open = await engine.db.query('select delivery from posthaste.work where tenant = $1', [tenant]);
      for (const { delivery } of open.rows) await api(tenant, delivery, 'cancel');
      return open.rows.length;
    };
    await until(left, (count) => count === 0);
    // And no workflow may still have one to act on.
    const running = `WorkflowType = 'delivery' and WhTenant = '${tenant}' and ExecutionStatus = 'Running'`;
    await until(
      async () => (await client.workflow.count(running)).count,
      (count) => count === 0,
      100_000, // beside other suites those that are told late take their time
    );
    await until(left, (count) => count === 0);
    expect(overlapping).toBe(1);
    const logs = await engine.db.query(
      `select d.event, d.n, count(a.n)::int as attempts, count(distinct a.n)::int as numbers, max(a.n) as last
       from posthaste.deliveries d left join posthaste.attempts a on a.delivery = d.id where d.tenant = $1 group by 1, 2`,
      [tenant],
    );
    const seen = Map.groupBy(receiver.requests, (request) => request.webhookId);
    for (const { event, n, attempts, numbers, last } of logs.rows)
      expect([event, attempts, numbers, last, seen.get(event)?.length ?? 0]).toEqual([
        event,
        n,
        n,
        n === 0 ? null : n,
        n,
      ]);
    await receiver.close();
  }, 200_000);
});
