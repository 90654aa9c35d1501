import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type Carrier, type Carriers, createCarriers } from '../../src/activities/carriers.ts';

let carriers: Carriers;
let relieved: string[];
beforeEach(() => {
  vi.useFakeTimers();
  relieved = [];
  carriers = createCarriers((lane) => relieved.push(lane));
});
afterEach(() => vi.useRealTimers());

/** A dispatch whose groups end when they are let. */
function begin(lane: 'first' | 'retry' = 'first') {
  const taken: string[] = [];
  const ends: (() => void)[] = [];
  const carrier: Carrier = carriers.begin(lane, (dispatch) => {
    taken.push(dispatch);
    return new Promise((resolve) => {
      ends.push(resolve);
    });
  });
  let over = false;
  void carrier.over.then(() => {
    over = true;
  });
  return {
    carrier,
    taken,
    endAll: async () => {
      for (const end of ends.splice(0)) end();
      await vi.advanceTimersByTimeAsync(0);
    },
    over: () => over,
  };
}

test('a group joins a running dispatch of its lane, and needs a workflow when there is none', () => {
  expect([carriers.open('first'), carriers.carry('first', 'dsp_1')]).toEqual([false, false]);
  const running = begin('first');
  expect([carriers.open('first'), carriers.carry('first', 'dsp_2')]).toEqual([true, true]);
  expect([carriers.open('retry'), carriers.carry('retry', 'dsp_3')]).toEqual([false, false]);
  expect(running.taken).toEqual(['dsp_2']);
});

test('a dispatch ends when nothing has come for a while, not before its own group and those that joined have ended', async () => {
  const running = begin();
  await vi.advanceTimersByTimeAsync(8_000);
  expect(carriers.carry('first', 'dsp_1')).toBe(true);
  running.carrier.ownEnded();
  await vi.advanceTimersByTimeAsync(8_000);
  expect([carriers.open('first'), running.over()]).toEqual([true, false]);
  await running.endAll();
  await vi.advanceTimersByTimeAsync(2_000);
  expect([carriers.open('first'), running.over()]).toEqual([true, false]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect([carriers.open('first'), running.over()]).toEqual([false, true]);
});

test('after ten seconds relief is asked for now and then, and nobody waits for it; what begins, relieves', async () => {
  const old = begin();
  await vi.advanceTimersByTimeAsync(9_900);
  expect(carriers.carry('first', 'dsp_1')).toBe(true);
  await vi.advanceTimersByTimeAsync(200);
  expect(carriers.open('first')).toBe(true);
  expect([1, 2, 3].map((n) => carriers.carry('first', `dsp_${n}`))).toEqual([true, true, true]);
  expect(relieved).toEqual(['first']);
  await vi.advanceTimersByTimeAsync(3_100); // the start has failed, or is slow
  expect([4, 5].map((n) => carriers.carry('first', `dsp_${n}`))).toEqual([true, true]);
  expect(relieved).toEqual(['first', 'first']);
  const young = begin();
  expect(carriers.carry('first', 'dsp_6')).toBe(true);
  expect(young.taken).toEqual(['dsp_6']);
  expect(old.over()).toBe(false);
  old.carrier.ownEnded();
  await old.endAll();
  expect(old.over()).toBe(true);
});

test('a dispatch that nobody relieves takes no more after half a minute', async () => {
  const old = begin();
  await vi.advanceTimersByTimeAsync(31_000);
  expect(carriers.open('first')).toBe(false);
  expect(old.over()).toBe(false);
  old.carrier.ownEnded();
  await vi.advanceTimersByTimeAsync(0);
  expect(old.over()).toBe(true);
});

test('a closed dispatch takes no more at once; an older one that still does is asked again', async () => {
  const older = begin();
  const younger = begin();
  expect(carriers.carry('first', 'dsp_1')).toBe(true);
  expect(younger.taken).toEqual(['dsp_1']);
  younger.carrier.close();
  younger.carrier.close();
  expect(carriers.carry('first', 'dsp_2')).toBe(true);
  expect(older.taken).toEqual(['dsp_2']);
});
