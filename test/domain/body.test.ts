import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type BodyFacts, buildBody } from '../../src/domain/body.ts';
import { idTimeMs, isId, makeId } from '../../src/domain/ids.ts';

const build = (facts: BodyFacts, data: Buffer): Buffer =>
  buildBody(
    facts,
    data,
    (text) => Buffer.from(text),
    (parts) => Buffer.concat(parts),
  );
const facts: BodyFacts = {
  raw: false,
  event: 'evt_1',
  type: 'a.b',
  occurredAtMs: Date.UTC(2026, 10, 30, 12),
  version: '9223372036854775807',
  sequence: 5,
};

it('splices data into the envelope byte by byte', () => {
  const data = Buffer.from('{"n": 1.0e+400,  "a":1,"a":2, "z":"\\ud800"}');
  expect(build(facts, data).toString()).toBe(
    `{"id":"evt_1","type":"a.b","timestamp":"2026-11-30T12:00:00.000Z","version":9223372036854775807,"sequence":5,"data":${data}}`,
  );
});

it('is valid JSON around any JSON value, with the value unchanged', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.string(), (value, type) => {
      const text = JSON.stringify(value);
      const parsed = JSON.parse(build({ ...facts, type, version: null }, Buffer.from(text)).toString());
      expect(JSON.stringify(parsed.data)).toBe(JSON.stringify(JSON.parse(text)));
      expect(parsed).toMatchObject({ id: 'evt_1', type, version: null, sequence: 5 });
    }),
  );
});

it('sends raw events as they are', () => {
  const bytes = Buffer.from([0, 255, 10]);
  expect(build({ ...facts, raw: true }, bytes)).toEqual(bytes);
});

it('keeps the time of an id, and ids sort by it', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 45 }), fc.integer({ min: 0, max: 2 ** 45 }), (a, b) => {
      const [x, y] = [makeId('evt', a, '0123456789abcdef'), makeId('evt', b, 'fedcba9876543210')];
      expect(idTimeMs(x)).toBe(a);
      expect(isId('evt', x)).toBe(true);
      if (a < b) expect(x < y).toBe(true);
    }),
  );
  expect(idTimeMs('evt_short')).toBeNull();
  expect(isId('dlv', makeId('evt', 1, '0123456789abcdef'))).toBe(false);
});
