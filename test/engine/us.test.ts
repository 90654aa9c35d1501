/** Many independent endpoints fail at once: breakers trip when our own network works, and freeze when it does not. */
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { countEndpoints, countHeld } from '../../src/db/upkeep.ts';
import { prepareEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';

const FAILING = 10;
const ATTEMPTS = 26;

/** A port of loopback that refuses connections. */
async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const { port } = server.address() as { port: number };
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

/** Ten endpoints in as many networks that refuse, and one known to be good, which is alive or not. */
async function outage(alive: boolean) {
  const engine = await prepareEngine();
  const { url } = await engine.start(['api', 'relay', 'worker']);
  await seedTenant(engine.db, 'good');
  const good = await startReceiver();
  const { id } = await seedEndpoint(engine.db, 'good', { url: good.url });
  await enqueueMany(engine.db, 'good', 'a.b', 1);
  const succeeded = async () =>
    (await engine.db.query('select oks from posthaste.endpoint_state where endpoint = $1', [id])).rows[0].oks;
  await until(succeeded, (oks) => oks === 1);
  if (!alive) await good.close();
  await seedTenant(engine.db, 'bad');
  const port = await closedPort();
  const policy = { schedule: Array.from({ length: ATTEMPTS - 1 }, () => '100ms') };
  for (let i = 0; i < FAILING; i++)
    await seedEndpoint(engine.db, 'bad', { url: `http://127.0.${i + 1}.1:${port}/`, policy });
  await enqueueMany(engine.db, 'bad', 'a.b', 1);
  const count = async (what: string): Promise<number> =>
    (await engine.db.query(`select count(*) as c from posthaste.${what}`)).rows[0].c;
  const metrics = async (): Promise<string> => (await fetch(`${url}/metrics`)).text();
  const frozen = async (): Promise<string | undefined> =>
    /^posthaste_sending_frozen (\d)/m.exec(await metrics())?.[1];
  return { db: engine.db, count, metrics, frozen, close: () => (alive ? good.close() : undefined) };
}

it('when what was known to be good is dead too, nothing trips, and deliveries go on by their own schedule', async () => {
  const { count, frozen } = await outage(false);
  await until(frozen, (gauge) => gauge === '1');
  await until(
    () => count(`dead_letters where reason = 'max_attempts'`),
    (dead) => dead === FAILING,
  );
  expect(await count("attempts where decision <> 'delivered'")).toBe(FAILING * ATTEMPTS);
  expect(await count(`notices where kind = 'opened'`)).toBe(0);
  expect(await count(`endpoint_state where health <> 'closed' or mode <> 'shared'`)).toBe(0);
  expect(await frozen()).toBe('1');
});

it('when what was known to be good can be reached, each of them trips', async () => {
  const { db, count, metrics, frozen, close } = await outage(true);
  await until(
    () => count(`notices where kind = 'opened'`),
    (opened) => opened === FAILING,
  );
  expect(await frozen()).toBe('0');
  expect(await count(`endpoint_state where mode = 'pump'`)).toBe(FAILING);
  expect(await metrics()).toContain(`posthaste_endpoint_edges_total{edge="opened",by="health"} ${FAILING}`);
  expect(await metrics()).toContain('posthaste_endpoints{health="open"} ');
  const shards = Array.from({ length: 16 }, (_, shard) => shard);
  const { closed, ...ill } = await countEndpoints(db, shards);
  expect(closed).toBe(1);
  expect(Object.values(ill).reduce((sum, each) => sum + each, 0)).toBe(FAILING);
  // In one snapshot: probes go on meanwhile.
  const client = await db.connect();
  await client.query('begin isolation level repeatable read');
  const { rows } = await client.query(
    'select count(*) as held from posthaste.work where held_deadline is not null',
  );
  expect(await countHeld(client, shards)).toBe(rows[0].held);
  await client.query('commit');
  client.release();
  await close();
});
