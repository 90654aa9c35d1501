/** What a producer may send, as a table; each refusal must name the field. */
import { describe, expect, test } from 'vitest';
import { checkEvent, checkRawEvent, parseTimestamp } from '../../src/domain/event-input.ts';

function check(text: string) {
  const bytes = new TextEncoder().encode(text);
  const checked = checkEvent(JSON.parse(text), bytes, 0, '');
  return checked.ok
    ? { ...checked.event, data: text.slice(checked.event.data.start, checked.event.data.end) }
    : checked.errors.map((error) => error.pointer);
}

describe('checkEvent', () => {
  test('takes the fields as they are meant', () => {
    const text =
      '{"type":"a.b","id":"x_1","version":9223372036854775807,"timestamp":"2026-01-31T12:00:00.5+01:00","data": [1 ]}';
    expect(check(text)).toEqual({
      type: 'a.b',
      id: 'x_1',
      version: '9223372036854775807',
      occurredAtMs: Date.UTC(2026, 0, 31, 11, 0, 0, 500),
      data: '[1 ]',
    });
  });

  test('takes null as left out, but data null as data', () => {
    expect(check('{"type":"t","id":null,"version":null,"timestamp":null,"data":null}')).toEqual({
      type: 't',
      id: null,
      version: null,
      occurredAtMs: null,
      data: 'null',
    });
  });

  test.each([
    ['"9007199254740993"', '9007199254740993'],
    ['9007199254740993', '9007199254740993'],
    ['0', '0'],
    ['"0"', '0'],
  ])('keeps version %s exact', (given, kept) => {
    expect(check(`{"type":"t","data":1,"version":${given}}`)).toMatchObject({ version: kept });
  });

  test.each([
    ['an empty object', '{}', ['/type', '/data']],
    ['a list', '[]', ['']],
    ['a number', '7', ['']],
    ['null', 'null', ['']],
    ['a type with a space', '{"type":"a b","data":1}', ['/type']],
    ['an empty type', '{"type":"","data":1}', ['/type']],
    ['a type of 129 characters', `{"type":"${'a'.repeat(129)}","data":1}`, ['/type']],
    ['a type that is a number', '{"type":1,"data":1}', ['/type']],
    ['a type with a newline at its end', '{"type":"a\\n","data":1}', ['/type']],
    ['an id with a slash', '{"type":"t","data":1,"id":"a/b"}', ['/id']],
    ['an id of 65 characters', `{"type":"t","data":1,"id":"${'a'.repeat(65)}"}`, ['/id']],
    ['an id that is a number', '{"type":"t","data":1,"id":5}', ['/id']],
    ['an empty id', '{"type":"t","data":1,"id":""}', ['/id']],
    ['a version beyond 2^63-1', '{"type":"t","data":1,"version":9223372036854775808}', ['/version']],
    ['a negative version', '{"type":"t","data":1,"version":-1}', ['/version']],
    ['a version with an exponent', '{"type":"t","data":1,"version":1e3}', ['/version']],
    ['a fractional version', '{"type":"t","data":1,"version":1.0}', ['/version']],
    ['a huge version', `{"type":"t","data":1,"version":1${'0'.repeat(400)}}`, ['/version']],
    ['a version with leading zeros', '{"type":"t","data":1,"version":"007"}', ['/version']],
    ['a version that is a list', '{"type":"t","data":1,"version":[1]}', ['/version']],
    ['a timestamp without a zone', '{"type":"t","data":1,"timestamp":"2026-01-31T12:00:00"}', ['/timestamp']],
    ['a timestamp that is a number', '{"type":"t","data":1,"timestamp":1700000000}', ['/timestamp']],
    ['an unknown field', '{"type":"t","data":1,"payload":2}', ['/payload']],
    ['a field with a slash in its name', '{"type":"t","data":1,"a/b~c":2}', ['/a~1b~0c']],
    ['__proto__', '{"type":"t","data":1,"__proto__":{"id":"x"}}', ['/__proto__']],
    ['data twice', '{"type":"t","data":1,"data":2}', ['/data']],
    ['data twice, once in disguise', '{"type":"t","data":1,"d\\u0061ta":2}', ['/data']],
    [
      'everything wrong at once',
      '{"type":"","id":"","version":"","timestamp":""}',
      ['/type', '/data', '/id', '/version', '/timestamp'],
    ],
  ])('refuses %s by name', (_, text, pointers) => {
    expect(check(text)).toEqual(pointers);
  });
});

test('checkRawEvent names its parameters', () => {
  const none = { type: null, id: null, version: null, timestamp: null };
  expect(checkRawEvent({ ...none, type: 't' })).toMatchObject({ ok: true, event: { type: 't' } });
  const wrong = checkRawEvent({ type: null, id: '/', version: '-1', timestamp: 'now' });
  expect(wrong.ok ? [] : wrong.errors.map((error) => error.parameter)).toEqual([
    'type',
    'id',
    'version',
    'timestamp',
  ]);
});

describe('parseTimestamp', () => {
  test.each([
    ['2026-02-28T23:59:59Z', Date.UTC(2026, 1, 28, 23, 59, 59)],
    ['2024-02-29t00:00:00.123456789z', Date.UTC(2024, 1, 29, 0, 0, 0, 123)],
    ['2026-01-01T00:00:00-23:59', Date.UTC(2026, 0, 1, 23, 59)],
    ['0001-01-01T00:00:00Z', -62_135_596_800_000],
    ['9999-12-31T23:59:59.999Z', 253_402_300_799_999],
    ['0099-03-01T00:00:00Z', new Date('0099-03-01T00:00:00Z').getTime()],
  ])('reads %s', (text, ms) => {
    expect(parseTimestamp(text)).toBe(ms);
  });

  test.each([
    '2023-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2026-04-31T00:00:00Z',
    '2026-00-01T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-01-00T00:00:00Z',
    '2026-01-01T24:00:00Z',
    '2026-01-01T00:60:00Z',
    '2026-01-01T00:00:60Z',
    '2026-01-01T00:00:00+24:00',
    '2026-01-01T00:00:00+0100',
    '2026-01-01 00:00:00Z',
    '2026-01-01',
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00+00:01',
    '9999-12-31T23:59:59-00:01',
    '12026-01-01T00:00:00Z',
    '2026-01-01T00:00:00.Z',
    '2026-01-01T00:00:00Z\n',
    '',
    null,
    {},
  ])('refuses %j', (text) => {
    expect(parseTimestamp(text)).toBeNull();
  });
});
