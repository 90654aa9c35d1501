/** Every command line and every query of docs/temporal.md, against the real dev server and its own CLI. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { Client, Connection } from '@temporalio/client';
import { beforeAll, describe, expect, it } from 'vitest';
import { ensureTemporalCli } from '../../src/embedded/temporal-cli.ts';
import { deliveryWorkflowId } from '../../src/workflows/contract.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

const doc = readFileSync(new URL('../../docs/temporal.md', import.meta.url), 'utf8');
const commands = new Map(
  [...doc.matchAll(/<!-- cli: ([a-z-]+) -->\n```sh\n([\s\S]*?)```/g)].map((match) => [match[1]!, match[2]!]),
);
const queries = [...doc.matchAll(/^\| ([^|]+) \| `([^`]+)` \|$/gm)]
  .map((match) => ({ view: match[1]!.trim(), query: match[2]! }))
  .filter(({ query }) => query.includes(' = '));

let engine: TestEngine;
let client: Client;
let cli: string;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
  cli = await ensureTemporalCli(console.error);
  const connection = await Connection.connect({ address: engine.config.temporal.address });
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

const ran = new Set<string>();
/** Runs a documented command as a person would who has set these variables; answers what it printed. */
async function run(name: string, variables: Record<string, string>): Promise<string> {
  ran.add(name);
  const { stdout } = await promisify(execFile)('sh', ['-c', commands.get(name)!], {
    env: {
      PATH: `${dirname(cli)}:${process.env.PATH}`,
      HOME: process.env.HOME ?? '',
      TEMPORAL_ADDRESS: engine.config.temporal.address,
      TEMPORAL_NAMESPACE: engine.config.temporal.namespace,
      ...variables,
    },
  });
  return stdout;
}

const ended = async (tenant: string, state: string): Promise<string[]> =>
  (
    await engine.db.query(
      'select id from posthaste.deliveries where tenant = $1 and state = $2 order by id',
      [tenant, state],
    )
  ).rows.map((row) => row.id);
const some = (count: number) => (ids: string[]) => ids.length === count;

/** One delivery that sleeps in its workflow for an hour. */
async function sleeping(
  tenant: string,
): Promise<{ delivery: string; endpoint: string; receiver: TestReceiver }> {
  await seedTenant(engine.db, tenant);
  const receiver = await startReceiver({ respond: (_request, n) => ({ status: n === 0 ? 503 : 200 }) });
  const { id: endpoint } = await seedEndpoint(engine.db, tenant, {
    url: receiver.url,
    policy: { schedule: ['1h', '1h'] },
  });
  await enqueueMany(engine.db, tenant, 'order.paid', 1);
  const row = async () =>
    (await engine.db.query('select delivery, state from posthaste.work where tenant = $1', [tenant])).rows[0];
  const { delivery } = await until(row, (found) => found?.state === 'retrying');
  const asleep = () =>
    client.workflow
      .getHandle(deliveryWorkflowId(delivery))
      .query<{ state: string }>('state')
      .then(
        ({ state }) => state,
        (error: Error) => error.message,
      );
  await until(asleep, (state) => state === 'retrying');
  return { delivery, endpoint, receiver };
}

describe('the command lines of docs/temporal.md', () => {
  it('show a delivery, try it again, and send it once more after it has ended', async () => {
    const { delivery, receiver } = await sleeping('resends');
    expect(await run('state', { DELIVERY: delivery })).toMatch(/"state":\s*"retrying"/);
    expect(await run('resend', { DELIVERY: delivery })).toContain('attempts:1');
    expect(await until(() => ended('resends', 'delivered'), some(1))).toEqual([delivery]);
    await client.workflow.getHandle(deliveryWorkflowId(delivery)).result();
    await run('replay-signal', { DELIVERY: delivery });
    await receiver.waitFor(3);
    await until(() => ended('resends', 'delivered'), some(1));
    expect(await run('replay-one', { DELIVERY: delivery })).toMatch(/"moved":\s*1/);
    await receiver.waitFor(4);
    await until(() => ended('resends', 'delivered'), some(1));
    expect(new Set(receiver.requests.map((request) => request.webhookId)).size).toBe(1);
    await receiver.close();
  }, 60_000);

  it('cancel a delivery', async () => {
    const { delivery, receiver } = await sleeping('cancels');
    expect(await run('cancel', { DELIVERY: delivery })).toContain('state:cancelled');
    expect(await ended('cancels', 'cancelled')).toEqual([delivery]);
    await receiver.close();
  }, 60_000);

  it('replay an endpoint, watch it, and stop it', async () => {
    await seedTenant(engine.db, 'replays');
    const receiver = await startReceiver({ respond: () => ({ status: 400 }) });
    const { id } = await seedEndpoint(engine.db, 'replays', {
      url: receiver.url,
      policy: { max_attempts: 1 },
    });
    await enqueueMany(engine.db, 'replays', 'a.b', 200);
    await until(() => ended('replays', 'dead'), some(200));
    receiver.respond(() => ({ status: 200 }));
    await run('replay-start', { ENDPOINT: id });
    await receiver.waitFor(201);
    expect(await run('replay-progress', { ENDPOINT: id })).toMatch(/"state":\s*"running"/);
    expect(await run('replay-cancel', { ENDPOINT: id })).toContain('state:cancelled');
    const { moved } = (await client.workflow.getHandle(`recover-${id}`).result()) as { moved: number };
    expect(moved).toBeLessThan(200);
    await until(() => ended('replays', 'delivered'), some(moved));
    await receiver.close();
  }, 60_000);

  it('send an event, inline and by id', async () => {
    await seedTenant(engine.db, 'acme');
    const receiver = await startReceiver();
    await seedEndpoint(engine.db, 'acme', { url: receiver.url });
    expect(await run('send-inline', {})).toMatch(/"deliveries":\s*\[\s*"dlv_/);
    const [event] = await enqueueMany(engine.db, 'acme', 'order.paid', 1);
    expect(await run('send-by-id', { EVENT: event! })).toMatch(/"deliveries":\s*\[\s*"dlv_/);
    await receiver.waitFor(2);
    expect(receiver.requests.map((request) => JSON.parse(request.body.toString()).data)).toContainEqual({
      order: 1001,
    });
    await receiver.close();
  }, 60_000);

  it('are all run by this file', () => {
    expect([...ran].toSorted()).toEqual([...commands.keys()].toSorted());
    expect(doc.match(/^temporal workflow/gm)).toHaveLength(commands.size);
  });
});

describe('the queries of docs/temporal.md', () => {
  it('are nine, and the server takes each of them', async () => {
    expect(queries).toHaveLength(9);
    for (const { view, query } of queries) {
      const found: string[] = [];
      for await (const { workflowId } of client.workflow.list({ query })) found.push(workflowId);
      expect([view, Array.isArray(found)]).toEqual([view, true]);
    }
  }, 60_000);

  it('find what they are named for', async () => {
    const { delivery, endpoint, receiver } = await sleeping('finds');
    await seedTenant(engine.db, 'acme');
    const failing = await startReceiver({ respond: () => ({ status: 500 }) });
    // Whoever fails gets a workflow, whether or not the first attempt was made in a group.
    await seedEndpoint(engine.db, 'acme', {
      url: failing.url,
      types: ['dies'],
      policy: { schedule: ['2s'] },
    });
    await enqueueMany(engine.db, 'acme', 'dies', 1);
    const [dead] = await until(() => ended('acme', 'dead'), some(1));
    const find = async (view: string, change: (query: string) => string = (query) => query) => {
      const found: string[] = [];
      const query = change(queries.find((each) => each.view === view)!.query);
      for await (const { workflowId } of client.workflow.list({ query })) found.push(workflowId);
      return found;
    };
    const has = (id: string) => (found: string[]) => found.includes(deliveryWorkflowId(id));
    await until(() => find('dead letters'), has(dead!));
    await until(() => find('dead letters of a tenant'), has(dead!));
    await until(() => find('retrying'), has(delivery));
    await until(() => find('waiting, by event type'), has(delivery));
    await until(() => find('waiting, by tenant', (query) => query.replace('acme', 'finds')), has(delivery));
    await until(
      () => find('waiting, by endpoint', (query) => query.replace(/ep_\w+/, endpoint)),
      has(delivery),
    );
    await until(() => find('waiting longest', (query) => query.replace('>= 5', '>= 1')), has(delivery));
    const now = new Date(Date.now() + 60_000).toISOString();
    await until(
      () => find('waiting since a time', (query) => query.replace(/'2026[^']+'/, `'${now}'`)),
      has(delivery),
    );
    const failure = await client.workflow
      .getHandle(deliveryWorkflowId(dead!))
      .result()
      .catch((error) => error.cause);
    expect(failure.type).toBe('DeadLettered');
    expect(failure.message).toMatch(
      /^Dead after 2 attempt\(s\): max_attempts, last 500\. To send it again: .*resend/,
    );
    await receiver.close();
    await failing.close();
  }, 60_000);
});
