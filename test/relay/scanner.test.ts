/** When the scanner may call a claim lost: only after a while of its own unbroken contact with the database. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import type { Leases } from '../../src/relay/leases.ts';
import { createScanner, REAP_GRACE_MS, type Scanner } from '../../src/relay/scanner.ts';
import type { Starter } from '../../src/temporal/starter.ts';
import { claim } from '../support/claim.ts';
import { until } from '../support/engine.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant, seedWork } from '../support/seed.ts';

let db: Pool;
let scanner: Scanner;
let scans = 0;
let reachable = true;
let valid = true;
let later = 0; // how far performance.now() has been moved on
const reaped: string[] = [];

/** A pool that counts scans, or behaves as if PostgreSQL were away. */
function watched(pool: Pool): Pool {
  return {
    query(...args: unknown[]) {
      if (!reachable) return Promise.reject(Object.assign(new Error('away'), { code: 'ECONNREFUSED' }));
      if ((args[0] as { name?: string }).name === 'scan_due') scans++;
      return (pool.query as (...all: unknown[]) => unknown)(...args);
    },
  } as unknown as Pool;
}

const leases = {
  held: () => Array.from({ length: 16 }, (_, shard) => ({ shard, epoch: 1 })),
  valid: () => valid,
} as unknown as Leases;
const starter = { available: () => false } as unknown as Starter; // Temporal plays no part here

beforeAll(async () => {
  db = createPool((await createDatabase()).url);
  await seedTenant(db, 'lost');
});
afterAll(() => db.end());

beforeEach(async () => {
  const { id } = await seedEndpoint(db, 'lost', { url: 'https://example.com/' });
  const [delivery] = await seedWork(db, 'lost', id, 1);
  await claim(db, [{ delivery: delivery!, generation: 1, n: 0 }]);
  await db.query(
    `update posthaste.work set claim_until = now() - interval '1 hour', scan_at = now() where delivery = $1`,
    [delivery],
  );
  reaped.length = 0;
  const real = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => real() + later);
  scanner = createScanner({
    db: watched(db),
    starter,
    carriers: { open: () => false, carry: () => false },
    leases,
    grouping: 'auto',
    log: createLog({ level: 'silent' }),
    livingRoom: () => 0,
    endpointRoom: () => 0,
    onReaped: (lost) => reaped.push(lost),
  });
  void scanner.run();
});
afterEach(() => scanner.stop());

/** Two whole scans from now on: the third begins when the second has ended. */
async function scanned(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    const before = scans;
    await until(
      async () => {
        scanner.poke();
        return scans;
      },
      (now) => now > before,
    );
  }
}

/** Moves the clock on as a running scanner would see it: in steps shorter than a gap. */
async function contactFor(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 5_000) {
    later += Math.min(5_000, left);
    await scanned();
  }
}

it('reaps an expired claim after the grace of contact, not before', async () => {
  await scanned();
  await contactFor(REAP_GRACE_MS - 5_000);
  expect(reaped).toEqual([]);
  await contactFor(5_000);
  expect(reaped).toHaveLength(1);
});

it('starts the grace anew after an outage, though it idled through it without its leases', async () => {
  await contactFor(REAP_GRACE_MS - 5_000);
  reachable = false;
  scanner.poke();
  valid = false; // what an outage of more than 5 s does to the leases
  later += 60_000;
  scanner.poke();
  await new Promise((resolve) => setTimeout(resolve, 100)); // nothing tells that a scan did nothing
  later += 60_000;
  reachable = true;
  valid = true;
  await scanned();
  await contactFor(REAP_GRACE_MS - 5_000);
  expect(reaped).toEqual([]);
  await contactFor(5_000);
  expect(reaped).toHaveLength(1);
});

it('starts the grace anew when the database was silent for long without an error', async () => {
  await contactFor(REAP_GRACE_MS - 5_000);
  later += 60_000;
  await scanned();
  expect(reaped).toEqual([]);
  await contactFor(REAP_GRACE_MS);
  expect(reaped).toHaveLength(1);
});
