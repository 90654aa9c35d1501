/**
 * What one delivery and a group of 200 cost, counted: Temporal calls and history events, SQL statements, rows written.
 * None of it depends on time, and all of it can grow unseen.
 *
 * When a bound here changes: fewer is good news, write the new number down. More needs a reason. Say it in CHANGELOG.md,
 * run `npm run bench -- --only S0-10,S1b` before and after, and correct "What it costs per delivery" in
 * docs/architecture.md.
 */
import { Client, Connection } from '@temporalio/client';
import pg from 'pg';
import { beforeAll, expect, it } from 'vitest';
import { cleanUpLater } from '../support/clean-up.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { type GrpcProxy, startGrpcProxy } from '../support/grpc-proxy.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

const HOW_TO = 'what a delivery costs has changed: see the top of test/engine/cost.test.ts';

/** Asked by the clock, whether or not anything is delivered. What is asked per delivery or group does not belong here. */
const PERIODIC_STATEMENTS = new Set([
  'acquire_leases',
  'adopt_pumps',
  'clock',
  'count_endpoints',
  'count_held',
  'count_living',
  'count_living_endpoints',
  'count_unfinished',
  'count_work',
  'discover',
  'health_due',
  'dissolve', // the scanner's look for abandoned groups; a group asks it once too
  'living_dispatches',
  'load_weights',
  'outbox_age',
  'process_goodbye',
  'process_heartbeat',
  'reap',
  'release_leases',
  'renew_dispatch',
  'renew_leases',
  'scan_disown',
  'scan_due',
  'scan_later',
  'scan_pumps',
  'scan_replays',
  'scan_tests',
  'select posthaste.ensure_partitions() as made',
  'select posthaste.oldest_day()::text as day',
  'select posthaste.purge_old($1) as gone',
]);
const PERIODIC_CALLS =
  /^(Poll|GetSystemInfo|DescribeNamespace|RecordWorkerHeartbeat|RecordActivityTaskHeartbeat|ShutdownWorker)/;
/** Written by the clock, or by the test itself on connections whose statistics may come late. */
const NOT_COUNTED =
  /^((shards|processes) .*|(tenants|tenant_sequences|endpoints|endpoint_state|endpoint_secrets|events|outbox) inserted)$/;

type Counts = Record<string, number>;

interface Cost {
  statements: Counts;
  calls: Counts;
  /** `work inserted`, `work updated` …; tables by day count as one. */
  rows: Counts;
  /** Of the one workflow there was, and its id. */
  history: number;
  workflows: string[];
}

let engine: TestEngine;
let proxy: GrpcProxy;
let client: Client;
const statements = new Map<string, number>();

/** Statements of the process under test, by name; the test's own connections have another application name. */
function countStatements(): void {
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const { application_name: application } = (
      this as unknown as { connectionParameters: { application_name?: string } }
    ).connectionParameters;
    if (application === 'posthaste relay+worker') {
      const asked = args[0] as string | { name?: string; text?: string };
      const name = typeof asked === 'string' ? asked : (asked.name ?? asked.text ?? '?');
      statements.set(name, (statements.get(name) ?? 0) + 1);
    }
    return query.apply(this, args);
  } as typeof pg.Client.prototype.query;
}

async function rowsWritten(): Promise<Counts> {
  // A connection tells the statistics what it wrote when it ends, at the latest.
  const connected = async (): Promise<number> =>
    (
      await engine.db.query(
        `select count(*)::int as c from pg_stat_activity where datname = current_database() and application_name = 'posthaste relay+worker'`,
      )
    ).rows[0].c;
  await until(connected, (count) => count === 0);
  await engine.db.query('select pg_stat_clear_snapshot()');
  const { rows } = await engine.db.query(
    `select regexp_replace(relname, '_(\\d{8}|default)$', '') as name, sum(n_tup_ins)::int as i, sum(n_tup_upd)::int as u, sum(n_tup_del)::int as d
     from pg_stat_user_tables where schemaname = 'posthaste' group by 1`,
  );
  return Object.fromEntries(
    rows.flatMap(({ name, i, u, d }) => [
      [`${name} inserted`, i],
      [`${name} updated`, u],
      [`${name} deleted`, d],
    ]),
  );
}

/** Starts a process, lets `act` give it work, stops it when `deliveries` are delivered, and counts. */
async function costOf(deliveries: number, act: () => Promise<unknown>): Promise<Cost> {
  const ended = async (): Promise<number> =>
    (await engine.db.query('select count(*)::int as c from posthaste.deliveries')).rows[0].c;
  const alreadyEnded = await ended();
  const before = await rowsWritten();
  const known = new Set(await workflowIds());
  statements.clear();
  proxy.calls.clear();
  const running = await engine.start();
  await act();
  await until(ended, (count) => count === alreadyEnded + deliveries);
  const workflows = await until(
    async () => (await workflowIds('Completed')).filter((id) => !known.has(id)),
    (ids) => ids.length > 0,
  );
  await running.stop();
  const after = await rowsWritten();
  const { historyLength } = await client.workflow.getHandle(workflows[0]!).describe();
  const rows = Object.entries(after).map(([what, count]) => [what, count - (before[what] ?? 0)] as const);
  return {
    statements: without(statements, (name) => PERIODIC_STATEMENTS.has(name) || name.startsWith('purge_')),
    calls: without(proxy.calls, (name) => PERIODIC_CALLS.test(name)),
    rows: Object.fromEntries(rows.filter(([what, count]) => count > 0 && !NOT_COUNTED.test(what))),
    history: historyLength,
    workflows,
  };
}

function without(counts: ReadonlyMap<string, number>, periodic: (name: string) => boolean): Counts {
  return Object.fromEntries([...counts].filter(([name]) => !periodic(name)));
}

async function workflowIds(status?: string): Promise<string[]> {
  const ids: string[] = [];
  const query = status === undefined ? {} : { query: `ExecutionStatus = '${status}'` };
  for await (const { workflowId } of client.workflow.list(query)) ids.push(workflowId);
  return ids;
}

/** Nothing but these, and no more of any. */
function expectAtMost(counted: Counts, most: Counts): void {
  expect(
    Object.keys(counted).filter((name) => !(name in most)),
    HOW_TO,
  ).toEqual([]);
  for (const [name, bound] of Object.entries(most)) {
    expect(counted[name] ?? 0, `${name}: ${HOW_TO}`).toBeLessThanOrEqual(bound);
  }
}

beforeAll(async () => {
  countStatements();
  engine = await prepareEngine();
  proxy = await startGrpcProxy(engine.config.temporal.address!);
  engine.config.temporal.connectionOptions.address = proxy.address;
  const connection = await Connection.connect({ address: engine.config.temporal.address! });
  cleanUpLater(() => connection.close());
  client = new Client({ connection, namespace: engine.config.temporal.namespace });
});

/** One workflow with one regular activity, both started eagerly: what either shape asks of Temporal. */
const ONE_WORKFLOW = {
  StartWorkflowExecution: 1,
  RespondWorkflowTaskCompleted: 2,
  RespondActivityTaskCompleted: 1,
};

it('a single delivery that arrives costs 4 Temporal calls, 11 history events and 5 statements', async () => {
  await seedTenant(engine.db, 'one');
  const receiver = await startReceiver();
  await seedEndpoint(engine.db, 'one', { url: receiver.url });
  const cost = await costOf(1, () => enqueueMany(engine.db, 'one', 'a.b', 1));
  expect(cost.workflows).toEqual([expect.stringMatching(/^delivery\/dlv_/)]);
  expect(cost.history, HOW_TO).toBe(11);
  expect(cost.calls, HOW_TO).toEqual(ONE_WORKFLOW);
  expectAtMost(cost.statements, {
    fan_out: 1,
    load_deliveries: 1,
    load_endpoints: 1,
    claim: 1,
    record: 1,
  });
  expect(cost.rows, HOW_TO).toEqual({
    'outbox deleted': 1,
    'event_fanouts inserted': 1,
    'tenant_sequences updated': 1,
    'work inserted': 1,
    'work updated': 1,
    'work deleted': 1,
    'endpoint_state updated': 2,
    'attempts inserted': 1,
    'deliveries inserted': 1,
  });
  await receiver.close();
});

it('a group of 200 costs Temporal what one delivery does, and a handful of statements', async () => {
  const TENANTS = 20;
  const EACH = 10; // as many as an endpoint has slots: one claim takes them all
  const all = TENANTS * EACH;
  let release: () => void = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  // All are answered at once, so that how many calls record them does not hang on who came first.
  const receiver = await startReceiver({ respond: () => ({ status: 200, until: released }) });
  for (let t = 0; t < TENANTS; t++) {
    await seedTenant(engine.db, `many${t}`);
    await seedEndpoint(engine.db, `many${t}`, { url: `${receiver.url}/${t}`, cap: EACH });
  }
  const cost = await costOf(all, async () => {
    // One transaction: the relay sees all of it at once.
    await engine.db.query(
      `select posthaste.enqueue('many' || (g % $1), 'a.b', json_build_object('n', g)) from generate_series(1, $2::int) g`,
      [TENANTS, all],
    );
    await receiver.waitFor(all);
    release();
  });
  expect(cost.workflows).toEqual([expect.stringMatching(/^dispatch\/dsp_/)]);
  expect(cost.history, HOW_TO).toBe(11);
  expect(cost.calls, HOW_TO).toEqual(ONE_WORKFLOW);
  expectAtMost(cost.statements, {
    fan_out: 1,
    load_dispatch: 1,
    load_endpoints: 1,
    load_contents: 1,
    claim: 1,
    record: 20, // by how fast PostgreSQL takes them; without group commit it would be 200
  });
  const records = cost.statements.record!;
  const { 'endpoint_state updated': slots, ...rows } = cost.rows;
  expect(slots, HOW_TO).toBeLessThanOrEqual(TENANTS * (1 + records));
  expect(rows, HOW_TO).toEqual({
    'outbox deleted': all,
    'event_fanouts inserted': all,
    'tenant_sequences updated': TENANTS,
    'dispatches inserted': 1,
    'dispatches deleted': 1,
    'work inserted': all,
    'work updated': all,
    'work deleted': all,
    'attempts inserted': all,
    'deliveries inserted': all,
  });
  await receiver.close();
});
