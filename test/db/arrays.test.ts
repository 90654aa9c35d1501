/** What src/db/arrays.ts encodes is what PostgreSQL reads. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { bools, byteas, float4s, int2s, int4s, int8s, texts, timestamps } from '../../src/db/arrays.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createDatabase } from '../support/postgres.ts';

let db: Pool;
beforeAll(async () => {
  db = createPool((await createDatabase()).url, { max: 2 });
});
afterAll(() => db.end());

/** The array as PostgreSQL has it, element by element. */
async function read<T>(encoded: Buffer | null, type: string): Promise<T[]> {
  const result = await db.query({
    text: `select x from unnest($1::${type}[]) with ordinality u (x, i) order by i`,
    values: [encoded],
  });
  return result.rows.map((row) => row.x);
}

const column = <T>(of: fc.Arbitrary<T>) =>
  fc
    .array(fc.option(of), { minLength: 1, maxLength: 30 })
    .filter((values) => values.some((value) => value !== null));

const KINDS: Record<string, [fc.Arbitrary<unknown>, (values: never) => Buffer | null]> = {
  text: [fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\0', '')), texts],
  bytea: [fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)), byteas],
  boolean: [fc.boolean(), bools],
  smallint: [fc.integer({ min: -32_768, max: 32_767 }), int2s],
  integer: [fc.integer(), int4s],
  bigint: [fc.maxSafeInteger(), int8s],
};

describe('an array sent in binary', () => {
  for (const [type, [arbitrary, encode]] of Object.entries(KINDS)) {
    it(`of ${type} arrives as it was`, async () => {
      await fc.assert(
        fc.asyncProperty(column(arbitrary), async (values) => {
          expect(await read(encode(values as never), type)).toEqual(values);
        }),
        { numRuns: 50 },
      );
    });
  }

  it('of real arrives as the nearest single', async () => {
    const values = [0, 1.5, null, -2.25, 12_345.678, 1e30];
    const got = await read<number | null>(float4s(values), 'real');
    expect(got.map((value) => value && Math.fround(value))).toEqual(
      values.map((value) => value && Math.fround(value)),
    );
  });

  it('of moments arrives to the millisecond, from 1716 to 2283', async () => {
    await fc.assert(
      fc.asyncProperty(
        column(fc.integer({ min: -8_000_000_000_000, max: 9_900_000_000_000 })),
        async (values) => {
          const got = await read<Date | null>(timestamps(values), 'timestamptz');
          expect(got.map((date) => date?.getTime() ?? null)).toEqual(values);
        },
      ),
      { numRuns: 50 },
    );
    expect((await read<Date>(timestamps([1_000.9]), 'timestamptz'))[0]!.getTime()).toBe(1_000);
  });

  it('is null when every element is', () => {
    for (const encode of [texts, byteas, bools, int2s, int4s, int8s, float4s, timestamps])
      expect(encode([null, null])).toBeNull();
  });

  it('replaces half a surrogate pair, which UTF-8 does not know', async () => {
    expect(await read(texts(['a\ud800b']), 'text')).toEqual(['a\ufffdb']);
  });
});

describe('a moment that is read', () => {
  it('is the same in every time zone of the session, and with any number of decimals', async () => {
    const client = await db.connect();
    onTestFinished(() => client.release(true));
    for (const zone of ['UTC', 'Europe/Berlin', 'Asia/Kolkata', 'America/St_Johns']) {
      await client.query(`set time zone '${zone}'`);
      for (const text of [
        '2026-12-01 01:44:21+00',
        '2026-12-01 01:44:21.1+00',
        '2026-12-01 01:44:21.123456+00',
        '0099-02-03 04:05:06.789+00',
        '1969-12-31 23:59:59.999+00',
        '2028-02-29 12:00:00.01+00',
      ]) {
        const { rows } = await client.query(
          `select $1::timestamptz as moment, trunc(extract(epoch from $1::timestamptz) * 1000)::float8 as ms`,
          [text],
        );
        expect([zone, text, rows[0].moment.getTime()]).toEqual([
          zone,
          text,
          expect.closeTo(rows[0].ms, -0.5),
        ]);
      }
    }
    const { rows } = await client.query(`select 'infinity'::timestamptz as never`);
    expect(rows[0].never).toBe(Number.POSITIVE_INFINITY);
  });
});
