/** PostgreSQL away for a minute, twice at awkward moments, and killed in the middle of traffic. */
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { prepareEngine } from '../support/engine.ts';
import { startOwnPostgres } from '../support/own-postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { outageWithHeldAnswers } from './outage.ts';
import { audit, ended, seedCrowd } from './support.ts';

describe('PostgreSQL away for 60 s while workers hold answers', () => {
  it.each(['fast', 'immediate'] as const)(
    'costs nothing after a %s shutdown: they are recorded on its return and not sent again',
    async (how) => {
      console.log(how, JSON.stringify(await outageWithHeldAnswers({ awayMs: 60_000, how })));
    },
    300_000,
  );
});

describe('PostgreSQL stopped in the middle of traffic', () => {
  it('five times over, costs no delivery and no repeat; at most a claim whose answer was lost counts as unknown', async () => {
    const postgres = await startOwnPostgres();
    const engine = await prepareEngine({ database: postgres });
    const receiver = await startReceiver({ respond: () => ({ status: 200, delayMs: 20 }) });
    const crowd = await seedCrowd(engine.db, {
      name: 'storm',
      tenants: 5,
      endpoints: 4,
      url: receiver.url,
      timeoutMs: 2_000,
    });
    const process = await engine.start();
    const deliveries = await crowd.enqueue(150);
    for (const [index, after] of [200, 700, 1_200, 1_700, 2_300].entries()) {
      await receiver.waitFor(after, 120_000);
      await postgres.stop(index % 2 === 0 ? 'fast' : 'immediate');
      await delay(1_500); // the outage itself
      await postgres.restart();
    }
    await ended(engine.db, deliveries, 240_000);
    const result = await audit(engine.db, receiver.requests);
    console.log(`five outages: ${JSON.stringify(result)}`);
    expect(result).toMatchObject({ deliveries, repeats: 0 });
    await process.stop();
    await receiver.close();
  }, 480_000);
});
