/** Group commit: many requests share a commit, and strangers never share a failure. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createGrouper } from '../../src/api/group.ts';
import { listen } from '../../src/api/listen.ts';
import { createApi } from '../../src/api/server.ts';
import { createPool, withTransaction } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import { masterKeys } from '../support/seed.ts';
import { ADMIN_KEY, rig } from './support.ts';

const api = rig();
/** Commits take as long as this transaction, however busy the machine is. */
const HOLD = 'set local idle_in_transaction_session_timeout = 0; lock table posthaste.outbox in share mode';

test('events that arrive while a commit is under way share the next one', async () => {
  const tenant = await api.tenant();
  const arrived = new Promise<void>((resolve) => {
    let count = 0;
    const seen = () => {
      if (++count < 300) return;
      api.api.server.off('request', seen);
      resolve();
    };
    api.api.server.on('request', seen);
  });
  const answers = await withTransaction(api.db, async (client) => {
    await client.query(HOLD);
    const sent = Array.from({ length: 300 }, (_, n) =>
      api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data: n }),
    );
    await arrived;
    return { sent };
  });
  expect((await Promise.all(answers.sent)).every(({ status }) => status === 202)).toBe(true);
  const { rows } = await api.db.query(
    'select count(*) as events, count(distinct event) as ids, count(distinct xid) as commits from posthaste.outbox where tenant = $1',
    [tenant],
  );
  expect(rows[0]).toMatchObject({ events: 300, ids: 300 });
  expect(rows[0].commits).toBeLessThan(30);
});

test('an event that the database refuses fails alone', async () => {
  const tenant = await api.tenant();
  await api.db.query(`create function posthaste.poison() returns trigger language plpgsql as $$
    begin if new.type = 'poison' then raise exception 'no'; end if; return new; end $$`);
  await api.db.query(
    'create trigger poison before insert on posthaste.outbox for each row execute function posthaste.poison()',
  );
  const send = (n: number) => {
    const path = `/v1/tenants/${n % 3 === 0 ? tenant : 'nobody'}/events`;
    const own = n % 2 === 0 ? { id: `own${n}` } : {};
    return api.call('POST', path, { type: n === 30 || n === 33 ? 'poison' : 't', data: n, ...own });
  };
  const answers = await Promise.all(Array.from({ length: 90 }, (_, n) => send(n)));
  for (const [n, answer] of answers.entries()) {
    const wanted = n === 30 || n === 33 ? 500 : n % 3 === 0 ? 202 : 404;
    expect([n, answer.status]).toEqual([n, wanted]);
  }
  const { json } = answers[30]!;
  expect(json).toMatchObject({ code: 'internal', detail: '', request_id: expect.any(String) });
  expect(api.logged.filter((line) => line.includes(json.request_id))).toHaveLength(1);
  const { rows } = await api.db.query('select count(*) as n from posthaste.events where tenant = $1', [
    tenant,
  ]);
  expect(rows[0].n).toBe(28);
  await api.db.query('drop trigger poison on posthaste.outbox');
});

test('a broken connection is a 503 at worst, never a 500', async () => {
  const tenant = await api.tenant();
  const statuses = new Set<number>();
  for (let round = 0; round < 5; round++) {
    const sent = Array.from({ length: 40 }, (_, n) =>
      api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data: n }),
    );
    await api.db
      .query(
        `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()`,
      )
      .catch(() => {});
    for (const answer of await Promise.all(sent)) {
      statuses.add(answer.status);
      if (answer.status === 503) expect(answer.headers.get('retry-after')).toBe('2');
    }
  }
  expect([...statuses].filter((status) => status !== 202 && status !== 503)).toEqual([]);
  expect((await api.call('POST', `/v1/tenants/${tenant}/events`, { type: 't', data: 1 })).status).toBe(202);
});

test('without PostgreSQL everything is a 503 that says when to come back', async () => {
  const db = createPool('postgres://nobody:x@127.0.0.1:9/nothing', { max: 2 });
  const log = createLog({ level: 'silent' });
  const lost = createApi({
    db,
    log,
    config: { egressAllow: { items: [] }, masterKeys, maxEventBytes: 1024 },
    poke: () => {},
    readiness: async () => ({ ok: false, checks: { database: false } }),
  });
  const { url, close } = await listen(lost, { host: '127.0.0.1', port: 0, log });
  const headers = { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(`${url}/v1/tenants/a/events`, {
    method: 'POST',
    headers,
    body: '{"type":"t","data":1}',
  });
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '2']);
  expect(await answer.json()).toMatchObject({ code: 'unavailable' });
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  const ready = await fetch(`${url}/readyz`);
  expect([ready.status, await ready.json()]).toEqual([503, { ok: false, checks: { database: false } }]);
  await close();
  await db.end();
});

test('a server that stops answers what it has taken, and leaves no connection', async () => {
  const tenant = await api.tenant();
  const log = createLog({ level: 'silent' });
  const other = createApi({
    db: api.db,
    log,
    config: { egressAllow: { items: [] }, masterKeys, maxEventBytes: 1024 },
    poke: () => {},
    readiness: async () => ({ ok: true, checks: {} }),
  });
  const listening = await listen(other, { host: '127.0.0.1', port: 0, log });
  const headers = { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' };
  const send = () =>
    fetch(`${listening.url}/v1/tenants/${tenant}/events`, {
      method: 'POST',
      headers,
      body: '{"type":"t","data":1}',
    });
  expect((await send()).status).toBe(202); // and its connection is kept
  const { closed, answer } = await withTransaction(api.db, async (client) => {
    await client.query(HOLD);
    const answer = send();
    await new Promise((resolve) => listening.server.once('request', resolve));
    return { closed: listening.close(), answer };
  });
  expect((await answer).status).toBe(202);
  const start = performance.now();
  await closed;
  expect(performance.now() - start).toBeLessThan(2_000);
});

test('closing waits for events under way', async () => {
  const results: number[] = [];
  let release = (): void => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const grouper = createGrouper<number, number>({
    async run(items) {
      await gate;
      return items;
    },
    hopeless: () => false,
    bytes: () => 1,
    maxRows: 2,
    maxBytes: 10,
    parallel: 1,
    spacingMs: 0,
    enough: 1,
  });
  for (const n of [1, 2, 3, 4, 5]) void grouper.add(n).then((result) => results.push(result));
  const closed = grouper.close();
  release();
  await closed;
  await delay(0);
  expect(results).toEqual([1, 2, 3, 4, 5]);
});

test('groups keep their bounds, and a name occurs once in each', async () => {
  const groups: string[][] = [];
  const grouper = createGrouper<string, string>({
    async run(items) {
      groups.push(items);
      return items;
    },
    hopeless: () => false,
    bytes: (item) => item.length,
    names: (item) => [item[0] as string],
    maxRows: 3,
    maxBytes: 10,
    parallel: 1,
    spacingMs: 0,
    enough: 1,
  });
  await Promise.all(
    ['a', 'a2', 'b', 'c', 'a3', 'x'.repeat(50), 'y', 'z23456789', 'w'].map((item) => grouper.add(item)),
  );
  expect(groups).toEqual([['a', 'b', 'c'], ['a2'], ['a3'], ['x'.repeat(50)], ['y', 'z23456789'], ['w']]);
});

test('where items come side by side, what follows a group closely shares the next statement, unless there is enough of it', async () => {
  const groups: number[][] = [];
  const make = (spacingMs: number) =>
    createGrouper<number, number>({
      run: async (items) => {
        groups.push(items);
        return items;
      },
      hopeless: () => false,
      bytes: () => 1,
      maxRows: 100,
      maxBytes: 1_000,
      parallel: 2,
      spacingMs,
      enough: 3,
    });
  const patient = make(300); // far longer than the turns of the loop below
  await patient.add(1);
  await patient.add(2); // one after the other: nobody waits
  await Promise.all([patient.add(3), patient.add(4)]);
  const fifth = patient.add(5);
  await new Promise(setImmediate);
  await Promise.all([fifth, patient.add(6)]);
  expect(groups).toEqual([[1], [2], [3, 4], [5, 6]]);

  groups.length = 0;
  const never = make(2 ** 31 - 1);
  await Promise.all([never.add(1), never.add(2)]);
  await Promise.all([3, 4, 5].map((item) => never.add(item)));
  expect(groups).toEqual([
    [1, 2],
    [3, 4, 5],
  ]);
});
