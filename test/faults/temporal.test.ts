/** A Temporal server without our search attributes; temporal.heavy.test.ts stops and wipes servers. */
import { describe, expect, it } from 'vitest';
import { prepareEngine } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { ended, seedCrowd } from './support.ts';

describe('a Temporal server that lacks the search attributes', () => {
  it('carries singles, groups and retries all the same, each once', async () => {
    const engine = await prepareEngine({ attributes: false });
    const tries = new Map<string, number>();
    const receiver = await startReceiver({
      respond: ({ path, webhookId }) => {
        const key = `${path} ${webhookId}`;
        tries.set(key, (tries.get(key) ?? 0) + 1);
        return { status: path.endsWith('/1') && tries.get(key) === 1 ? 404 : 200 };
      },
    });
    const crowd = await seedCrowd(engine.db, {
      name: 'plain',
      tenants: 2,
      endpoints: 2,
      url: receiver.url,
      policy: { schedule: ['1600ms'] },
    });
    await engine.start();
    const few = await crowd.enqueue(1);
    await ended(engine.db, few, 20_000);
    const all = few + (await crowd.enqueue(50));
    await ended(engine.db, all, 30_000);
    expect(receiver.requests).toHaveLength(all + all / 2);
    expect([...tries.values()].every((n) => n <= 2)).toBe(true);
    const states = await engine.db.query('select distinct state from posthaste.deliveries');
    expect(states.rows).toEqual([{ state: 'delivered' }]);
    await receiver.close();
  }, 60_000);
});
