/** replay/<id> from Temporal's side: each input, watching, cancelling, losing it. */
import { Client, Connection, type WorkflowHandle } from '@temporalio/client';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  cancelReplayUpdate,
  type ReplayInput,
  type ReplayProgress,
  type ReplayWorkflow,
  replayProgressQuery,
} from '../../src/temporal-client/index.ts';
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

const count = async (tenant: string, state: string): Promise<number> =>
  (
    await engine.db.query(
      'select count(*)::int as c from posthaste.deliveries where tenant = $1 and state = $2',
      [tenant, state],
    )
  ).rows[0].c;

/** So many dead deliveries of one endpoint, whose receiver is well again. */
async function outage(tenant: string, deliveries: number) {
  await seedTenant(engine.db, tenant);
  const receiver = await startReceiver({ respond: () => ({ status: 400 }) });
  const { id: endpointId } = await seedEndpoint(engine.db, tenant, {
    url: receiver.url,
    policy: { max_attempts: 1 },
  });
  await enqueueMany(engine.db, tenant, 'a.b', deliveries);
  await until(
    () => count(tenant, 'dead'),
    (dead) => dead === deliveries,
  );
  receiver.respond(() => ({ status: 200 }));
  return { receiver, endpointId, since: new Date(Date.now() - 3_600_000).toISOString() };
}

const start = (workflowId: string, input: ReplayInput): Promise<WorkflowHandle<ReplayWorkflow>> =>
  client.workflow.start<ReplayWorkflow>('replay', { taskQueue: 'posthaste', workflowId, args: [input] });

describe('replay', () => {
  it('of an endpoint’s range sends everything once, shows how far it is, and ends with the counts', async () => {
    const { receiver, endpointId, since } = await outage('ranged', 30);
    const handle = await start('recover-ranged', { endpointId, since, rate: 500 });
    expect(await handle.result()).toMatchObject({
      state: 'done',
      total: 30,
      moved: 30,
      missed: 0,
      skipped: 0,
    });
    await keepHistory(client, 'replay-done', 'recover-ranged');
    expect(await handle.query(replayProgressQuery)).toMatchObject({ state: 'done', moved: 30 });
    await until(
      () => count('ranged', 'delivered'),
      (delivered) => delivered === 30,
    );
    expect(receiver.requests).toHaveLength(60);
    await receiver.close();
  }, 60_000);

  it('of one delivery sends it, also when it was delivered', async () => {
    const { receiver } = await outage('single', 1);
    const [row] = (await engine.db.query(`select id from posthaste.deliveries where tenant = 'single'`)).rows;
    for (const sent of [2, 3]) {
      const handle = await start(`again-${sent}`, { deliveryId: row.id });
      expect(await handle.result()).toMatchObject({ state: 'done', total: 1, moved: 1 });
      await receiver.waitFor(sent);
      await until(
        () => count('single', 'delivered'),
        (delivered) => delivered === 1,
      );
    }
    expect(new Set(receiver.requests.map((request) => request.webhookId)).size).toBe(1);
    await receiver.close();
  }, 60_000);

  it('stops by the update `cancel`, and answers how far it came', async () => {
    const { receiver, endpointId, since } = await outage('halted', 60);
    const handle = await start('recover-halted', { endpointId, since, rate: 5 });
    await receiver.waitFor(61);
    const stopped = await handle.executeUpdate(cancelReplayUpdate);
    expect(stopped).toMatchObject({ state: 'cancelled' });
    expect(await handle.result()).toEqual(stopped);
    await keepHistory(client, 'replay-cancelled', 'recover-halted');
    expect(stopped.moved).toBeLessThan(60);
    await until(
      () => count('halted', 'delivered'),
      (delivered) => delivered === stopped.moved,
    );
    expect(await count('halted', 'dead')).toBe(60 - stopped.moved);
    await receiver.close();
  }, 60_000);

  it('cancelled in Temporal is cancelled; terminated it is started again and repeats nothing', async () => {
    const { receiver, endpointId, since } = await outage('lost', 40);
    const cancelled = await start('recover-cancelled', { endpointId, since, rate: 5 });
    await receiver.waitFor(41);
    await cancelled.cancel();
    await expect(cancelled.result()).rejects.toThrow();
    await keepHistory(client, 'replay-cancelled-in-temporal', 'recover-cancelled');
    const states = async () =>
      (
        await engine.db.query(
          `select id, state, moved from posthaste.replays where tenant = 'lost' order by id`,
        )
      ).rows;
    expect(await states()).toMatchObject([{ state: 'cancelled' }]);

    const terminated = await start('recover-terminated', { endpointId, since, rate: 10 });
    const { replayId } = await until(
      () => terminated.query(replayProgressQuery),
      (progress: ReplayProgress) => progress.replayId !== null,
    );
    await terminated.terminate('a test');
    await engine.db.query('update posthaste.replays set alive_until = now(), rate = 1000 where id = $1', [
      replayId,
    ]);
    await until(
      () => count('lost', 'delivered'),
      (delivered) => delivered === 40,
    );
    // By another workflow, or by the page that was under way and did not hear of the end of its own.
    expect(
      (await until(states, (rows) => rows.every((row) => row.state !== 'running'))).at(-1),
    ).toMatchObject({
      id: replayId,
      state: 'done',
    });
    expect(receiver.requests).toHaveLength(80);
    await receiver.close();
  }, 90_000);

  it('that can’t be done fails with what is wrong', async () => {
    await seedTenant(engine.db, 'wrong');
    const { id: endpointId } = await seedEndpoint(engine.db, 'wrong', { url: 'http://127.0.0.1:9/' });
    const failure = async (workflowId: string, input: ReplayInput) =>
      (await start(workflowId, input)).result().then(
        () => 'nothing',
        (error) => error.cause.cause.type,
      );
    expect(await failure('w1', { deliveryId: 'dlv_01KD5V3Q9B0000000000000000' })).toBe('DeliveryNotFound');
    expect(await failure('w2', { endpointId: 'ep_x', since: '2026-01-01T00:00:00Z' })).toBe(
      'EndpointNotFound',
    );
    expect(await failure('w3', { endpointId, since: 'yesterday' })).toBe('InvalidInput');
    expect(await failure('w4', { replayId: 'rpl_x' })).toBe('ReplayNotFound');
    await engine.db.query(`update posthaste.endpoints set state = 'disabled' where id = $1`, [endpointId]);
    expect(await failure('w5', { endpointId, since: '2026-01-01T00:00:00Z' })).toBe('EndpointDisabled');
  }, 60_000);
});
