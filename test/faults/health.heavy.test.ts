/** Endpoint health under faults: killed and stopped workers, PostgreSQL and Temporal away, lanes full of hanging requests. */
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { prepareEngine, until } from '../support/engine.ts';
import { startOwnPostgres } from '../support/own-postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';
import { startOwnTemporal } from '../support/temporal.ts';
import { audit, ended, seedCrowd, startReady } from './support.ts';

const CAP = 6;

describe('three worker processes of which one is killed and one is stopped', () => {
  it('never exceed an endpoint’s cap at the receiver, the stopped one’s open requests aside, in both modes', async () => {
    const engine = await prepareEngine();
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 25 }) });
    // One that is paced as well: it is sent to by its pump alone.
    const paced = await startReceiver({ respond: () => ({ status: 200, delayMs: 25 }) });
    await seedTenant(engine.db, 'cap');
    await seedTenant(engine.db, 'paced');
    await seedEndpoint(engine.db, 'cap', { url: `${receiver.url}/cap`, cap: CAP, timeoutMs: 1_000 });
    const { id } = await seedEndpoint(engine.db, 'paced', {
      url: `${paced.url}/paced`,
      cap: CAP,
      timeoutMs: 1_000,
    });
    await engine.db.query('update posthaste.endpoint_state set rate_limit = 80 where endpoint = $1', [id]);
    const relay = await startReady(engine, 'relay');
    const workers = [
      await startReady(engine, 'worker'),
      await startReady(engine, 'worker'),
      await startReady(engine, 'worker'),
    ] as const;
    const enqueue = async (tenant: string, count: number): Promise<void> => {
      await engine.db.query(
        `select count(posthaste.enqueue($1, 'fault.test', json_build_object('n', g))) from generate_series(1, $2::int) g`,
        [tenant, count],
      );
    };
    await enqueue('cap', 3_000);
    await enqueue('paced', 2_000);
    await Promise.all([receiver.waitFor(200, 60_000), paced.waitFor(100, 60_000)]);
    await workers[0].kill();
    await receiver.waitFor(500, 90_000);
    process.kill(workers[1].pid, 'SIGSTOP');
    await receiver.waitFor(1_000, 120_000);
    await delay(30_000); // past the claims of the stopped one and the reaper's grace
    process.kill(workers[1].pid, 'SIGCONT');
    await ended(engine.db, 5_000, 300_000);
    const result = await audit(engine.db, [...receiver.requests, ...paced.requests]);
    console.log(
      `high water ${receiver.highWater()} and ${paced.highWater()} of ${CAP}: ${JSON.stringify(result)}`,
    );
    // A stopped process's requests are answered by the receiver at once: they are not open there.
    expect(receiver.highWater()).toBeLessThanOrEqual(CAP);
    expect(paced.highWater()).toBeLessThanOrEqual(CAP);
    for (const worker of [workers[1], workers[2], relay]) expect(await worker.terminate()).toBe(0);
    await Promise.all([receiver.close(), paced.close()]);
  }, 600_000);
});

describe('PostgreSQL and Temporal away while endpoints fail and recover', () => {
  it('leave no endpoint stuck, lose no edge and repeat no answered request', async () => {
    const postgres = await startOwnPostgres();
    const temporal = await startOwnTemporal();
    const engine = await prepareEngine({ database: postgres, temporalAddress: temporal.address });
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 5 }) });
    const crowd = await seedCrowd(engine.db, {
      name: 'health',
      tenants: 4,
      endpoints: 5,
      url: receiver.url,
      timeoutMs: 2_000,
      policy: { base: '1s', cap: '5s' },
    });
    const ill = new Set(crowd.tenants.map((tenant) => `/${tenant}/0`));
    let failing = true;
    const answered = new Map<string, number>();
    receiver.respond((request) => {
      if (failing && ill.has(request.path)) return { status: 500 };
      const key = `${request.path} ${request.webhookId}`;
      answered.set(key, (answered.get(key) ?? 0) + 1);
      return { status: 200, delayMs: 5 };
    });
    const running = await engine.start();
    let deliveries = await crowd.enqueue(40);
    const opened = async (): Promise<number> =>
      (
        await engine.db.query(
          `select count(*)::int as c from posthaste.endpoint_state where health in ('open', 'half_open')`,
        )
      ).rows[0].c;
    await until(opened, (count) => count === ill.size, 60_000);
    await postgres.stop('immediate');
    await delay(20_000); // the outage itself
    await postgres.restart();
    deliveries += await crowd.enqueue(5);
    await temporal.stop();
    await delay(20_000);
    failing = false;
    await temporal.restart();
    await ended(engine.db, deliveries, 400_000);
    const states = await engine.db.query(
      'select state, count(*)::int as c from posthaste.deliveries group by 1',
    );
    expect(states.rows).toEqual([{ state: 'delivered', c: deliveries }]);
    const twice = [...answered].filter(([, count]) => count > 1);
    const lost = await engine.db.query(
      `select count(*)::int as c from posthaste.attempts where class = 'worker_lost'`,
    );
    expect(twice.length).toBeLessThanOrEqual(lost.rows[0].c);
    // Everyone is well again, and was said to be.
    await until(
      async () =>
        (
          await engine.db.query(
            `select count(*)::int as c from posthaste.endpoint_state where health <> 'closed' or mode <> 'shared'`,
          )
        ).rows[0].c,
      (count) => count === 0,
      120_000,
    );
    const edges = await engine.db.query(
      `select kind, count(*)::int as c from posthaste.notices where kind in ('failing', 'recovered') group by 1 order by 1`,
    );
    expect(edges.rows).toEqual([
      { kind: 'failing', c: ill.size },
      { kind: 'recovered', c: ill.size },
    ]);
    await running.stop();
    await receiver.close();
  }, 900_000);
});

describe('the retry lane full of requests that hang', () => {
  it('leaves first attempts alone', async () => {
    const engine = await prepareEngine();
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    // The first answer is a failure, every retry hangs: 300 endpoints, three times the retry lane's slots.
    const hanging = await startReceiver({
      respond: (_request, n) => (n < 300 ? { status: 404 } : { status: 200, until: held }),
    });
    const brisk = await startReceiver();
    await seedTenant(engine.db, 'hanging');
    await seedTenant(engine.db, 'brisk');
    for (let i = 0; i < 300; i++)
      await seedEndpoint(engine.db, 'hanging', {
        url: `${hanging.url}/${i}`,
        policy: { schedule: ['1s', '1h'] },
        timeoutMs: 30_000,
      });
    await seedEndpoint(engine.db, 'brisk', { url: brisk.url });
    const running = await engine.start();
    await engine.db.query(`select posthaste.enqueue('hanging', 'a.b', '1')`);
    await hanging.waitFor(500, 120_000);
    for (let i = 0; i < 20; i++) {
      await engine.db.query(`select posthaste.enqueue('brisk', 'a.b', '1')`);
      await brisk.waitFor(i + 1, 10_000);
    }
    const waits = await engine.db.query(
      `select max(extract(epoch from a.started_at - d.created_at)) as worst from posthaste.attempts a
       join posthaste.deliveries d on d.id = a.delivery where a.tenant = 'brisk'`,
    );
    console.log(`brisk among ${hanging.requests.length} hanging: worst start ${waits.rows[0].worst} s`);
    release();
    await running.stop();
    await Promise.all([hanging.close(), brisk.close()]);
  }, 300_000);
});

describe('5,000 endpoints in mode pump at once', () => {
  it('are all served, and starve nobody meanwhile', async () => {
    const COUNT = 5_000;
    const engine = await prepareEngine();
    const receiver = await startReceiver();
    const brisk = await startReceiver();
    await seedTenant(engine.db, 'crowd');
    await seedTenant(engine.db, 'brisk');
    await seedEndpoint(engine.db, 'brisk', { url: brisk.url });
    for (let i = 0; i < COUNT; i += 50)
      await Promise.all(
        Array.from({ length: 50 }, (_, j) =>
          seedEndpoint(engine.db, 'crowd', { url: `${receiver.url}/${i + j}` }),
        ),
      );
    await engine.db.query(
      `update posthaste.endpoint_state set mode = 'pump', epoch = epoch + 1 where tenant = 'crowd'`,
    );
    await engine.db.query(`select posthaste.enqueue('crowd', 'a.b', '1')`);
    const running = await engine.start();
    const waits: number[] = [];
    for (let i = 0; receiver.requests.length < COUNT; i++) {
      const sent = performance.now();
      await engine.db.query(`select posthaste.enqueue('brisk', 'a.b', '1')`);
      await brisk.waitFor(i + 1, 30_000);
      waits.push(performance.now() - sent);
      await delay(200);
    }
    waits.sort((a, b) => a - b);
    console.log(
      `5,000 pumps served; ${waits.length} events of another tenant meanwhile: p50 ${Math.round(waits[Math.floor(waits.length / 2)]!)}, max ${Math.round(waits.at(-1)!)} ms`,
    );
    await running.stop();
    await Promise.all([receiver.close(), brisk.close()]);
  }, 400_000);
});
