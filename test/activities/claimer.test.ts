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
  ({ delivery, endpoint, kind: 'live', lane: 'first', generation: 1, n: 0 }) as const;
const going = new AbortController().signal;
const turn = () => new Promise(setImmediate);

test('claims of the same endpoints go one after the other and together, others at once', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  const first = claimer.claim([ask('d1', 'a')], going);
  const second = claimer.claim([ask('d2', 'a'), ask('d3', 'b')], going);
  const third = claimer.claim([ask('d4', 'a')], going);
  const other = claimer.claim([ask('d5', 'c')], going);
  await turn();
  expect(calls.map(({ deliveries }) => deliveries)).toEqual([['d1'], ['d5']]);
  calls[0]!.end();
  expect([...(await first)!.answers.keys()]).toEqual(['d1']);
  await turn();
  expect(calls[2]!.deliveries).toEqual(['d2', 'd3', 'd4']);
  calls[2]!.end();
  calls[1]!.end();
  expect((await second)!.answers.get('d3')).toMatchObject({ verdict: 'granted' });
  expect((await third)!.answers.get('d4')).toMatchObject({ verdict: 'granted' });
  expect((await other)!.answers.get('d5')).toMatchObject({ verdict: 'granted' });
});

test('a failed statement fails those who were in it, and the next goes on', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  const first = claimer.claim([ask('d1', 'a')], going);
  const second = claimer.claim([ask('d2', 'a')], going);
  await turn();
  calls[0]!.end(new Error('gone'));
  await expect(first).rejects.toThrow('gone');
  await turn();
  calls[1]!.end();
  expect((await second)!.answers.has('d2')).toBe(true);
});

test('a delivery that two groups ask for is asked for twice, one after the other, so that one of them is refused', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  void claimer.claim([ask('d0', 'a')], going);
  void claimer.claim([ask('d1', 'a')], going);
  void claimer.claim([ask('d1', 'a'), ask('d2', 'a')], going);
  await turn();
  calls[0]!.end();
  await turn();
  expect(calls[1]!.deliveries).toEqual(['d1']);
  calls[1]!.end();
  await turn();
  expect(calls[2]!.deliveries).toEqual(['d1', 'd2']);
});

test('who waits for one endpoint is not overtaken at another', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  void claimer.claim([ask('d1', 'a')], going);
  void claimer.claim([ask('d2', 'a'), ask('d3', 'b')], going);
  void claimer.claim([ask('d4', 'b')], going); // b is free, but promised
  await turn();
  expect(calls).toHaveLength(1);
  calls[0]!.end();
  await turn();
  expect(calls[1]!.deliveries).toEqual(['d2', 'd3', 'd4']);
});

test('what others brought into a statement that fails is asked for again alone', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  void claimer.claim([ask('d0', 'a')], going);
  const bad = claimer.claim([ask('d1', 'a')], going);
  const good = claimer.claim([ask('d2', 'a')], going);
  await turn();
  calls[0]!.end();
  await turn();
  expect(calls[1]!.deliveries).toEqual(['d1', 'd2']);
  calls[1]!.end(new Error('a bug'));
  await turn();
  calls[2]!.end(new Error('a bug'));
  await expect(bad).rejects.toThrow('a bug');
  await turn();
  calls[3]!.end();
  expect((await good)!.answers.has('d2')).toBe(true);
});

test('nothing is claimed after a stop', async () => {
  const { db, calls } = database();
  const claimer = createClaimer(db);
  const stop = new AbortController();
  void claimer.claim([ask('d0', 'a')], going);
  const waiting = claimer.claim([ask('d1', 'a')], stop.signal);
  stop.abort();
  await turn();
  calls[0]!.end();
  expect(await waiting).toBeNull();
  expect(calls).toHaveLength(1);
});
