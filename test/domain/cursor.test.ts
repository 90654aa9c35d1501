/** Cursors come back as they went out, and only to the list and the filters they came from. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeCursor, encodeCursor } from '../../src/domain/cursor.ts';

const part = fc.string({
  unit: fc.integer({ min: 0x20, max: 0x7e }).map((c) => String.fromCharCode(c)),
  minLength: 1,
  maxLength: 64,
});

test('a cursor gives back its position', () => {
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 3 }), fc.jsonValue(), (position, filters) => {
      const cursor = encodeCursor('events', filters, position);
      expect(cursor).toMatch(/^[A-Za-z0-9_-]+$/);
      expect(decodeCursor(cursor, 'events', filters, position.length)).toEqual(position);
    }),
  );
});

test('a cursor of another list, of other filters or of another length is refused', () => {
  const cursor = encodeCursor('events', ['t1', { type: null }], ['1', 'a']);
  expect(decodeCursor(cursor, 'deliveries', ['t1', { type: null }], 2)).toBeNull();
  expect(decodeCursor(cursor, 'events', ['t2', { type: null }], 2)).toBeNull();
  expect(decodeCursor(cursor, 'events', ['t1', { type: 'x' }], 2)).toBeNull();
  expect(decodeCursor(cursor, 'events', ['t1', { type: null }], 1)).toBeNull();
});

const of = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const [, , filterHash] = JSON.parse(Buffer.from(encodeCursor('events', 0, ['a']), 'base64url').toString());

test.each([
  ['nothing', ''],
  ['words', 'next'],
  ['spaces', 'a b'],
  ['padding', 'WzFd=='],
  ['not JSON', Buffer.from('{').toString('base64url')],
  ['an object', of({})],
  ['another version', of([2, 'events', filterHash, 'a'])],
  ['a number as position', of([1, 'events', filterHash, 5])],
  ['NUL in the position', of([1, 'events', filterHash, '\0'])],
  ['a long position', of([1, 'events', filterHash, 'a'.repeat(200)])],
  ['a huge one', 'A'.repeat(100_000)],
])('%s is refused', (_, cursor) => {
  expect(decodeCursor(cursor, 'events', 0, 1)).toBeNull();
});
