import { expect, test } from 'vitest';
import { createClaimer } from '../../src/activities/claimer.ts';
import type { Pool } from '../../src/db/pool.ts';

/** A database whose claims end when they are let; answers every delivery that was asked for. */
function database() {
  const calls: { deliveries: string[]; end(error?: Error): void }[] = [];
  const db = {
    query: ({ values }: { values: Buffer[] }) =>
      new Promise((resolve, reject) => {
        const deliveries = textsIn(values[1]!);
        const rows = deliveries.map((delivery) => ({ delivery, verdict: 'granted' }));
        calls.push({ deliveries, end: (error) => (error ? reject(error) : resolve({ rows })) });
      }),
  } as unknown as Pool;
  return { db, calls };
}

/** The elements of a text array in PostgreSQL's binary format. */
function textsIn(array: Buffer): string[] {
  const found: string[] = [];
  for (let at = 20; at < array.length; ) {
    const bytes = array.readInt32BE(at);
    found.push(array.toString('utf8', at + 4, at + 4 + bytes));
    at += 4 + bytes;
  }
  return found;
}

const ask = (delivery: string, endpoint: string) =>
  ({ delivery, endpoint, kind: 'live', generation: 1, n: 0 }) as const;
const turn = () => new Promise(setImmediate);

test('claims of the same endpoints go one after the other and together, others at once', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  const first = claimer.claim([ask('d1', 'a')]);
  const second = claimer.claim([ask('d2', 'a'), ask('d3', 'b')]);
  const third = claimer.claim([ask('d4', 'a')]);
  const other = claimer.claim([ask('d5', 'c')]);
  await turn();
  expect(calls.map(({ deliveries }) => deliveries)).toEqual([['d1'], ['d5']]);
  calls[0]!.end();
  expect([...(await first).keys()]).toEqual(['d1']);
  await turn();
  expect(calls[2]!.deliveries).toEqual(['d2', 'd3', 'd4']);
  calls[2]!.end();
  calls[1]!.end();
  expect((await second).get('d3')).toMatchObject({ verdict: 'granted' });
  expect((await third).get('d4')).toMatchObject({ verdict: 'granted' });
  expect((await other).get('d5')).toMatchObject({ verdict: 'granted' });
});

test('a failed statement fails those who were in it, and the next goes on', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  const first = claimer.claim([ask('d1', 'a')]);
  const second = claimer.claim([ask('d2', 'a')]);
  await turn();
  calls[0]!.end(new Error('gone'));
  await expect(first).rejects.toThrow('gone');
  await turn();
  calls[1]!.end();
  expect((await second).has('d2')).toBe(true);
});
