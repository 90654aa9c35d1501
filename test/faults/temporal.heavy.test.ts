/** Temporal gone for half a minute, its data wiped, its search attributes unknown: everything arrives, once. */
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { prepareEngine, type TestEngine } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { type OwnTemporal, startOwnTemporal } from '../support/temporal.ts';
import { audit, type Crowd, ended, seedCrowd } from './support.ts';

const OUTAGE_MS = 30_000;

interface Traffic {
  /** Ends it; answers how many deliveries it made. */
  stop(): Promise<number>;
}

/** Events all the time, as single workflows and in bursts, with endpoints that first fail and are tried again. */
function startTraffic(crowd: Crowd): Traffic {
  let going = true;
  let made = 0;
  const run = (async () => {
    for (let i = 0; going; i++) {
      made += await crowd.enqueue(i % 10 === 0 ? 20 : 1);
      await delay(250);
    }
  })();
  return {
    async stop() {
      going = false;
      await run;
      return made;
    },
  };
}

async function prepare(temporalAddress: string): Promise<{
  engine: TestEngine;
  receiver: TestReceiver;
  crowd: Crowd;
}> {
  const engine = await prepareEngine({ temporalAddress });
  const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 20 }) });
  const crowd = await seedCrowd(engine.db, { name: 'temporal', tenants: 3, endpoints: 2, url: receiver.url });
  return { engine, receiver, crowd };
}

/** Traffic before, during and after `outage`; everything arrives once and without an unknown attempt. */
async function survive(temporal: OwnTemporal, outage: () => Promise<void>): Promise<void> {
  const { engine, receiver, crowd } = await prepare(temporal.address);
  const process = await engine.start();
  const traffic = startTraffic(crowd);
  await receiver.waitFor(300, 60_000);
  const before = receiver.requests.length;
  await outage();
  const atReturn = receiver.requests.length;
  await receiver.waitFor(atReturn + 100, 120_000);
  const deliveries = await traffic.stop();
  const returned = performance.now();
  await ended(engine.db, deliveries, 240_000);
  const result = await audit(engine.db, receiver.requests);
  console.log(
    `${before} received before, ${atReturn - before} during; the last one ${Math.round((performance.now() - returned) / 1_000)} s after the traffic ended: ${JSON.stringify(result)}`,
  );
  expect(result).toEqual({ requests: deliveries, deliveries, repeats: 0, unknown: 0 });
  await process.stop();
  await receiver.close();
}

describe('Temporal', () => {
  it('may be away for 30 s in the middle of traffic', async () => {
    const temporal = await startOwnTemporal();
    await survive(temporal, async () => {
      await temporal.stop();
      await delay(OUTAGE_MS); // the outage itself
      await temporal.restart();
    });
  }, 480_000);

  it('may lose all its data in the middle of traffic, with deliveries asleep in it', async () => {
    const temporal = await startOwnTemporal();
    await survive(temporal, async () => {
      await temporal.stop();
      await temporal.wipe();
      await temporal.restart();
    });
  }, 480_000);

  it('may lose all its data while deliveries sleep in workflows between their attempts', async () => {
    const temporal = await startOwnTemporal();
    const engine = await prepareEngine({ temporalAddress: temporal.address });
    let healthy = false;
    const receiver = await startReceiver({ respond: () => ({ status: healthy ? 200 : 503 }) });
    const crowd = await seedCrowd(engine.db, {
      name: 'asleep',
      tenants: 2,
      endpoints: 2,
      url: receiver.url,
      policy: { schedule: ['5s', '5s', '5s', '5s', '5s', '5s', '5s', '5s', '5s', '5s', '5s', '5s'] },
    });
    const process = await engine.start();
    const deliveries = await crowd.enqueue(10);
    await receiver.waitFor(deliveries + 10, 60_000);
    await temporal.stop();
    await temporal.wipe();
    healthy = true;
    await temporal.restart();
    await ended(engine.db, deliveries, 180_000);
    const log = await engine.db.query(
      `select class, count(*)::int as c from posthaste.attempts group by class order by class`,
    );
    expect(log.rows.map((row) => row.class)).toEqual(['http_503', 'ok']);
    expect(log.rows[1].c).toBe(deliveries);
    expect(receiver.requests).toHaveLength(log.rows[0].c + log.rows[1].c);
    await process.stop();
    await receiver.close();
  }, 480_000);
});
