/** sendEvent: by a client, as a child of a user's workflow, and as an activity of a worker in another namespace. */
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { bundleWorkflowCode, DefaultLogger, NativeConnection, Worker } from '@temporalio/worker';
import { beforeAll, describe, expect, it } from 'vitest';
import { makeTest } from '../../src/db/tests.ts';
import { createSendEventActivity, type SendEventOptions } from '../../src/temporal-client/activity.ts';
import type { SendEventInput, SendEventResult, SendEventWorkflow } from '../../src/temporal-client/index.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { keepHistory } from '../support/histories.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';
import { createNamespace } from '../support/temporal.ts';
import type { payByActivity, payByChild } from '../support/users-workflows.ts';

let engine: TestEngine;
let client: Client;
let receiver: TestReceiver;
let url: string;
let bundle: { code: string };
beforeAll(async () => {
  engine = await prepareEngine();
  url = (await engine.start(['api', 'relay', 'worker'])).url!;
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
  receiver = await startReceiver();
  bundle = await bundleWorkflowCode({
    workflowsPath: fileURLToPath(new URL('../support/users-workflows.ts', import.meta.url)),
    logger: new DefaultLogger('ERROR'),
  });
  return () => receiver.close();
});

const start = (workflowId: string, input: SendEventInput) =>
  client.workflow.start<SendEventWorkflow>('sendEvent', {
    taskQueue: 'posthaste',
    workflowId,
    args: [input],
  });

/** A tenant with two endpoints. */
async function subscribers(tenant: string): Promise<void> {
  await seedTenant(engine.db, tenant);
  for (const n of [1, 2]) await seedEndpoint(engine.db, tenant, { url: `${receiver.url}/${tenant}/${n}` });
}
const deliveriesOf = async (tenant: string): Promise<string[]> =>
  (
    await engine.db.query(
      `select delivery as id from posthaste.work where tenant = $1 union select id from posthaste.deliveries where tenant = $1 order by 1`,
      [tenant],
    )
  ).rows.map((row) => row.id);

describe('sendEvent', () => {
  it('makes an event from inline data and answers its deliveries; its workflow id sends it once', async () => {
    await subscribers('inline');
    const input = { tenant: 'inline', type: 'order.paid', data: { order: 7 }, version: 3 };
    const handle = await start('order-7', input);
    const result = await handle.result();
    expect(result).toEqual({
      event: expect.stringMatching(/^wf-[0-9a-f]{40}$/),
      deliveries: await deliveriesOf('inline'),
    });
    expect(result.deliveries).toHaveLength(2);
    await keepHistory(client, 'send-event', 'order-7');
    const received = await receiver.waitForRequest((request) => request.webhookId === result.event);
    expect(JSON.parse(received.body.toString())).toMatchObject({
      type: 'order.paid',
      version: 3,
      data: { order: 7 },
    });
    expect(await (await start('order-7', input)).result()).toEqual(result);
    expect(await deliveriesOf('inline')).toEqual(result.deliveries);
    const other = await start('order-7', { ...input, data: { order: 8 } });
    await expect(other.result()).rejects.toMatchObject({ cause: { cause: { type: 'EventConflict' } } });
  }, 60_000);

  it('follows an event that exists, with nothing but ids in its history', async () => {
    await subscribers('existing');
    const { rows } = await engine.db.query(
      `select posthaste.enqueue('existing', 'a.b', '{"secret": "s3cret"}', id => 'mine-1') as id`,
    );
    const handle = await start('follow-1', { tenant: 'existing', eventId: rows[0].id });
    expect(await handle.result()).toEqual({ event: 'mine-1', deliveries: await deliveriesOf('existing') });
    expect(JSON.stringify(await handle.fetchHistory())).not.toContain(
      Buffer.from('s3cret').toString('base64').slice(0, 6),
    );
  }, 60_000);

  it('answers an object also when nobody subscribed, and for the event of a test send', async () => {
    await seedTenant(engine.db, 'alone');
    const inline = await (await start('alone-1', { tenant: 'alone', type: 'a.b', data: 1 })).result();
    expect(inline).toEqual({ event: expect.any(String), deliveries: [] });
    const followed = await start('alone-2', { tenant: 'alone', eventId: inline.event });
    expect(await followed.result()).toEqual(inline);
    const { id } = await seedEndpoint(engine.db, 'alone', { url: `${receiver.url}/alone` });
    const test = { tenant: 'alone', endpoint: id, type: 'a.b', body: Buffer.from('{}'), slackMs: 1_000 };
    const made = await makeTest(engine.db, test);
    if (made.outcome !== 'made') throw new Error(made.outcome);
    const tested = await start('alone-3', { tenant: 'alone', eventId: made.event });
    expect(await tested.result()).toEqual({ event: made.event, deliveries: [made.delivery] });
  }, 60_000);

  it('fails at once when the event can’t be sent', async () => {
    await seedTenant(engine.db, 'refusing');
    const failure = async (workflowId: string, input: SendEventInput) =>
      (await start(workflowId, input)).result().then(
        (result) => result,
        (error) => error.cause.cause.type,
      );
    expect(await failure('r1', { tenant: 'nobody', type: 'a', data: 1 })).toBe('TenantNotFound');
    expect(await failure('r2', { tenant: 'refusing', type: 'not a type', data: 1 })).toBe('InvalidInput');
    expect(await failure('r3', { tenant: 'refusing', type: 'a', data: 1, timestamp: 'noon' })).toBe(
      'InvalidInput',
    );
    expect(await failure('r4', { tenant: 'refusing', type: 'a', data: undefined })).toBe('InvalidInput');
    expect(await failure('r5', { tenant: 'refusing', type: 'a', data: 'x'.repeat(300_000) })).toBe(
      'InvalidInput',
    );
    expect(await failure('r6', { tenant: 'refusing', type: 'a', data: null })).toEqual({
      event: expect.any(String),
      deliveries: [],
    });
    expect(await failure('r7', { tenant: 'refusing', eventId: 'never-was' })).toBe('EventNotFound');
  }, 60_000);
});

describe('a user’s own worker', () => {
  /** Runs a workflow of test/support/users-workflows.ts on a worker of its own. */
  async function run<T extends typeof payByChild | typeof payByActivity>(
    where: { address: string; namespace: string; client: Client },
    type: T extends typeof payByChild ? 'payByChild' : 'payByActivity',
    args: Parameters<T>,
    options?: SendEventOptions,
  ): Promise<Awaited<ReturnType<T>>> {
    const connection = await NativeConnection.connect({ address: where.address });
    const activity = options === undefined ? undefined : createSendEventActivity(options);
    const worker = await Worker.create({
      connection,
      namespace: where.namespace,
      taskQueue: 'orders',
      workflowBundle: bundle,
      ...(activity === undefined ? {} : { activities: { sendEvent: activity.sendEvent } }),
    });
    try {
      const workflowId = `${type}-${args[0]}`;
      const running = where.client.workflow.execute(type, { taskQueue: 'orders', workflowId, args });
      return (await worker.runUntil(running)) as Awaited<ReturnType<T>>;
    } finally {
      await activity?.close();
      await connection.close();
    }
  }
  const here = () => ({
    address: engine.config.temporal.address,
    namespace: engine.config.temporal.namespace,
    client,
  });

  it('has it as a child in the same namespace; nothing of ours but names is in its bundle', async () => {
    await subscribers('child');
    const result = await run<typeof payByChild>(here(), 'payByChild', ['child', '1']);
    expect(result.deliveries).toEqual(await deliveriesOf('child'));
    expect(result.deliveries).toHaveLength(2);
    for (const heavy of [
      'node_modules/zod',
      'node_modules/pg',
      'node_modules/undici',
      '/src/db/',
      '/src/domain/',
    ])
      expect(bundle.code).not.toContain(heavy);
  }, 60_000);

  it.each([
    ['the database', () => ({ databaseUrl: engine.config.databaseUrl })],
    ['the API', () => ({ apiUrl: url, key: ADMIN_KEY })],
  ])(
    'has it as an activity in another namespace, through %s',
    async (name, options) => {
      const tenant = `activity-${name.replaceAll(' ', '-')}`;
      await subscribers(tenant);
      const results: SendEventResult[] = await run<typeof payByActivity>(
        await createNamespace(),
        'payByActivity',
        [tenant, '1'],
        options(),
      );
      expect(results.flatMap(({ deliveries }) => deliveries).toSorted()).toEqual(await deliveriesOf(tenant));
      expect(results.map(({ deliveries }) => deliveries.length)).toEqual([2, 2]);
      expect(results[1]!.event).toBe('shipped-1');
      await until(
        async () => receiver.requests.filter((request) => request.path.startsWith(`/${tenant}/`)).length,
        (count) => count === 4,
      );
    },
    60_000,
  );

  it.each([
    ['the database', () => ({ databaseUrl: engine.config.databaseUrl })],
    ['the API', () => ({ apiUrl: url, key: ADMIN_KEY })],
  ])(
    'is answered an event without deliveries when nobody subscribed, through %s',
    async (name, options) => {
      const tenant = `nobody-${name.replaceAll(' ', '-')}`;
      await seedTenant(engine.db, tenant);
      const results = await run<typeof payByActivity>(
        await createNamespace(),
        'payByActivity',
        [tenant, '1'],
        options(),
      );
      expect(results).toEqual([
        { event: expect.any(String), deliveries: [] },
        { event: 'shipped-1', deliveries: [] },
      ]);
    },
    60_000,
  );

  it('is answered all deliveries through the API, also more than an event shows', async () => {
    await seedTenant(engine.db, 'many');
    const endpoints = Array.from({ length: 205 }, (_, n) => ({
      url: `${receiver.url}/many/${n}`,
      types: ['order.shipped'],
    }));
    await Promise.all(endpoints.map((endpoint) => seedEndpoint(engine.db, 'many', endpoint)));
    const [, shipped] = await run<typeof payByActivity>(
      await createNamespace(),
      'payByActivity',
      ['many', '1'],
      {
        apiUrl: url,
        key: ADMIN_KEY,
      },
    );
    expect(shipped!.deliveries).toHaveLength(205);
    expect(shipped!.deliveries).toEqual(await deliveriesOf('many'));
  }, 60_000);

  it('is told for good what the API refuses', async () => {
    const failed = run<typeof payByActivity>(await createNamespace(), 'payByActivity', ['nobody', '1'], {
      apiUrl: url,
      key: ADMIN_KEY,
    });
    await expect(failed).rejects.toMatchObject({ cause: { cause: { type: 'TenantNotFound' } } });
  }, 60_000);
});
