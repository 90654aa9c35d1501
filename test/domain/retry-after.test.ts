import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { askedSeconds, parseRetryAfter, RETRY_AFTER_CAP_SECONDS } from '../../src/domain/retry-after.ts';

interface CaseFile {
  readonly now: string;
  readonly cases: { readonly value: string; readonly seconds: number | null }[];
}
const file = JSON.parse(
  readFileSync(new URL('../cases/retry-after.json', import.meta.url), 'utf8'),
) as CaseFile;
const now = Date.parse(file.now);

describe('the case file', () => {
  test.each(file.cases)('reads "$value" as $seconds seconds', (row) => {
    expect(parseRetryAfter(row.value, now)).toBe(row.seconds);
  });
});

test('every date that JavaScript prints in the fixed form is understood', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: RETRY_AFTER_CAP_SECONDS }), (seconds) => {
      expect(parseRetryAfter(new Date(now + seconds * 1000).toUTCString(), now)).toBe(seconds);
    }),
  );
});

test('the result is null or whole seconds between 0 and the cap, whatever is sent', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.integer().map(String),
        fc.date({ noInvalidDate: true }).map((d) => d.toUTCString()),
      ),
      (text) => {
        const seconds = parseRetryAfter(text, now);
        if (seconds === null) return;
        expect(Number.isInteger(seconds)).toBe(true);
        expect(seconds).toBeGreaterThanOrEqual(0);
        expect(seconds).toBeLessThanOrEqual(RETRY_AFTER_CAP_SECONDS);
      },
    ),
  );
});

test('a two-digit year far ahead belongs to the past century', () => {
  expect(parseRetryAfter('Tuesday, 30-Nov-99 12:02:00 GMT', now)).toBe(0);
});

test('what was asked for is told without the cap', () => {
  expect(askedSeconds(' 604800 ', now)).toBe(604_800);
  expect(askedSeconds(new Date(now + 604_800_000).toUTCString(), now)).toBe(604_800);
  expect(askedSeconds('next week', now)).toBeNull();
  expect(parseRetryAfter('604800', now)).toBe(RETRY_AFTER_CAP_SECONDS);
});
