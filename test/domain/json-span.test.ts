/** The scanner that cuts `data` out of a request: it must agree with JSON.parse on every text JSON.parse accepts. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { duplicateKey, elementSpans, memberSpans } from '../../src/domain/json-span.ts';

const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** JSON text with everything a writer may do to it: spaces, escapes, odd numbers, duplicate keys. */
const space = fc.constantFrom('', ' ', '\n', '\t\r\n ', '  ');
const scalar = fc.oneof(
  fc.constantFrom(
    'null',
    'true',
    'false',
    '0',
    '-0',
    '1e5',
    '-12.5E-3',
    '12345678901234567890123',
    '"\\u0000"',
    '"\\\\"',
    '"\\""',
  ),
  fc.string({ unit: 'grapheme' }).map((text) => JSON.stringify(text)),
  fc.constantFrom('"\\ud800"', '"}{]["', '"a\\\\\\"b,:"', '"\\u007d"'),
);
const key = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 8 }).map((text) => JSON.stringify(text)),
  fc.constantFrom('"d\\u0061ta"', '"data"', '"__proto__"', '""', '"\\\\"'),
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof({ maxDepth: 4 }, scalar, tie('list'), tie('object')),
  list: fc
    .tuple(space, fc.array(fc.tuple(space, tie('value'), space), { maxLength: 4 }))
    .map(([pad, items]) => `[${pad}${items.map((parts) => parts.join('')).join(',')}]`),
  object: fc
    .tuple(space, fc.array(fc.tuple(space, key, space, space, tie('value'), space), { maxLength: 4 }))
    .map(
      ([pad, items]) => `{${pad}${items.map(([a, k, b, c, v, d]) => `${a}${k}${b}:${c}${v}${d}`).join(',')}}`,
    ),
})) as { value: fc.Arbitrary<string> };

const object = fc
  .tuple(
    space,
    fc.array(fc.tuple(space, key, space, space, value, space), { minLength: 1, maxLength: 6 }),
    space,
  )
  .map(
    ([a, items, z]) =>
      `${a}{${items.map(([p, k, q, r, v, s]) => `${p}${k}${q}:${r}${v}${s}`).join(',')}}${z}`,
  );

describe('memberSpans', () => {
  test('gives for every key the text that JSON.parse made its value from', () => {
    fc.assert(
      fc.property(object, (text) => {
        const bytes = encode(text);
        const parsed = JSON.parse(text) as Record<string, unknown>;
        const members = memberSpans(bytes);
        expect(new Set(members.map((member) => member.key))).toEqual(new Set(Object.keys(parsed)));
        for (const name of Object.keys(parsed)) {
          const last = members.findLast((member) => member.key === name)!; // JSON.parse takes the last one
          expect(JSON.parse(decode(bytes.subarray(last.start, last.end)))).toEqual(
            Object.getOwnPropertyDescriptor(parsed, name)?.value,
          );
        }
      }),
      { numRuns: 500 },
    );
  });

  test('leaves nothing out: what lies between the values is keys, colons, commas, braces and space', () => {
    fc.assert(
      fc.property(object, (text) => {
        const bytes = encode(text);
        let at = 0;
        let rest = '';
        for (const { start, end } of memberSpans(bytes)) {
          rest += `${decode(bytes.subarray(at, start))}0`;
          at = end;
        }
        rest += decode(bytes.subarray(at));
        expect(Object.values(JSON.parse(rest)).every((each) => each === 0)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  test('keeps the exact bytes of a value whatever stands in it', () => {
    const data = '{ "b" :1.0, "a": 12345678901234567890,"b":2 , "s":"}\\"{" }';
    const bytes = encode(`{"type":"x", "data" : ${data} ,"id":"y"}`);
    const span = memberSpans(bytes).find((member) => member.key === 'data')!;
    expect(decode(bytes.subarray(span.start, span.end))).toBe(data);
  });

  test('starts where it is told to', () => {
    const bytes = encode('[{"a":1},{"b":[2]}]');
    const [, second] = elementSpans(bytes);
    expect(memberSpans(bytes, second!.start)).toEqual([{ key: 'b', start: 14, end: 17 }]);
  });

  test('takes a hundred thousand nested lists without a stack', () => {
    const depth = 100_000;
    const bytes = encode(`{"data":${'['.repeat(depth)}${']'.repeat(depth)}}`);
    expect(memberSpans(bytes)[0]).toEqual({ key: 'data', start: 8, end: 8 + 2 * depth });
  });
});

test('elementSpans gives the text of every element', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(space, value, space), { maxLength: 6 }), (items) => {
      const bytes = encode(`[${items.map((parts) => parts.join('')).join(',')}]`);
      expect(elementSpans(bytes).map((span) => decode(bytes.subarray(span.start, span.end)))).toEqual(
        items.map(([, text]) => text),
      );
    }),
    { numRuns: 300 },
  );
});

test('duplicateKey sees through escapes', () => {
  expect(duplicateKey(memberSpans(encode('{"data":1,"d\\u0061ta":2}')))).toBe('data');
  expect(duplicateKey(memberSpans(encode('{"data":1,"Data":2}')))).toBeNull();
});
