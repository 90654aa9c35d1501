import { expect, test } from 'vitest';
import { createProgress } from '../../src/activities/progress.ts';
import { createSlots } from '../../src/activities/slots.ts';

test('slots are counted for the whole process, and who waits is told of each that is left', () => {
  const slots = createSlots();
  const told: string[] = [];
  const stop = slots.listen((endpoint) => told.push(endpoint));
  slots.take('a');
  slots.take('a');
  expect(slots.taken('a')).toBe(2);
  slots.drop('a'); // was never given: nothing is free now that was not before
  expect(told).toEqual([]);
  slots.leave('a');
  expect(told).toEqual(['a']);
  expect(slots.taken('a')).toBe(0);
  stop();
  slots.take('b');
  slots.leave('b');
  expect(told).toEqual(['a']);
});

test('an endpoint is silent only while all its slots are with it', () => {
  const slots = createSlots();
  expect(slots.silentSince('a')).toBeNull();
  slots.take('a');
  expect(slots.silentSince('a')).toBeNull(); // the claim is on its way
  slots.sent('a');
  expect(slots.silentSince('a')).toBeLessThanOrEqual(performance.now());
  slots.take('a');
  slots.sent('a');
  slots.answered('a'); // and waits to be recorded
  expect(slots.silentSince('a')).toBeNull();
  slots.leave('a');
  expect(slots.silentSince('a')).not.toBeNull();
});

test('a relay beside the worker sees how far a group is, and once that it has ended', () => {
  const progress = createProgress();
  expect(progress.left('dsp_1')).toBeUndefined();
  const group = progress.begin('dsp_1', [{ tenant: 'a' }, { tenant: 'b' }, { tenant: 'a' }]);
  group.done('a');
  expect(progress.left('dsp_1')).toEqual(
    new Map([
      ['a', 1],
      ['b', 1],
    ]),
  );
  group.done('b');
  group.done('a');
  expect(progress.left('dsp_1')).toEqual(new Map());
  group.end();
  expect(progress.left('dsp_1')).toEqual(new Map());
  expect(progress.left('dsp_1')).toBeUndefined();
});

test('a group that broke off is counted by its rows again', () => {
  const progress = createProgress();
  const group = progress.begin('dsp_1', [{ tenant: 'a' }]);
  group.abandon();
  expect(progress.left('dsp_1')).toBeUndefined();
  const again = progress.begin('dsp_2', [{ tenant: 'a' }]);
  again.end();
  again.abandon();
  expect(progress.left('dsp_2')).toEqual(new Map());
});
