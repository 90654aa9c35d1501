/**
 * Arrays in PostgreSQL's binary format (array_send/array_recv, src/backend/utils/adt/arrayfuncs.c), as parameters of
 * statements that write hundreds of rows. pg sends a Buffer as a binary parameter; its own text form of an array costs
 * both sides several times as much. A column that is null throughout is a null array: unnest and subscripts read the same.
 */
type Nullable<T> = readonly (T | null)[];

const OIDS = {
  bool: 16,
  bytea: 17,
  int8: 20,
  int2: 21,
  int4: 23,
  text: 25,
  float4: 700,
  timestamptz: 1184,
} as const;

/** Dimensions, whether there are nulls, element type, length, lower bound. */
const HEAD_BYTES = 20;
/** PostgreSQL counts microseconds from 2000-01-01. */
const POSTGRES_EPOCH_MS = 946_684_800_000;

function allocate(oid: number, values: Nullable<unknown>, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(HEAD_BYTES + 4 * values.length + bytes);
  buffer.writeInt32BE(1, 0);
  buffer.writeInt32BE(values.includes(null) ? 1 : 0, 4);
  buffer.writeInt32BE(oid, 8);
  buffer.writeInt32BE(values.length, 12);
  buffer.writeInt32BE(1, 16);
  return buffer;
}

function fixed<T>(oid: number, bytes: number, write: (buffer: Buffer, value: T, at: number) => void) {
  return (values: Nullable<T>): Buffer | null => {
    if (values.every((value) => value === null)) return null;
    const buffer = allocate(oid, values, bytes * values.length);
    let at = HEAD_BYTES;
    for (const value of values) {
      at = buffer.writeInt32BE(value === null ? -1 : bytes, at);
      if (value === null) continue;
      write(buffer, value, at);
      at += bytes;
    }
    return buffer.subarray(0, at);
  };
}

export const bools = fixed<boolean>(OIDS.bool, 1, (buffer, value, at) =>
  buffer.writeUInt8(value ? 1 : 0, at),
);
export const int2s = fixed<number>(OIDS.int2, 2, (buffer, value, at) => buffer.writeInt16BE(value, at));
export const int4s = fixed<number>(OIDS.int4, 4, (buffer, value, at) => buffer.writeInt32BE(value, at));
/** Whole numbers up to 2^53. */
export const int8s = fixed<number>(OIDS.int8, 8, writeInt8);
export const float4s = fixed<number>(OIDS.float4, 4, (buffer, value, at) => buffer.writeFloatBE(value, at));
/** From epoch milliseconds, until the year 2285 (2^53 µs); what is finer is cut off, as in a Date. */
export const timestamps = fixed<number>(OIDS.timestamptz, 8, (buffer, value, at) =>
  writeInt8(buffer, (Math.trunc(value) - POSTGRES_EPOCH_MS) * 1_000, at),
);

function writeInt8(buffer: Buffer, value: number, at: number): void {
  const high = Math.floor(value / 2 ** 32);
  buffer.writeInt32BE(high, at);
  buffer.writeUInt32BE(value - high * 2 ** 32, at + 4);
}

/** UTF-8; a lone surrogate becomes U+FFFD. */
export function texts(values: Nullable<string>): Buffer | null {
  let most = 0;
  let some = false;
  for (const value of values) {
    if (value === null) continue;
    some = true;
    most += 3 * value.length; // UTF-8 of a UTF-16 unit
  }
  if (!some) return null;
  const buffer = allocate(OIDS.text, values, most);
  let at = HEAD_BYTES;
  for (const value of values) {
    if (value === null) {
      at = buffer.writeInt32BE(-1, at);
      continue;
    }
    const bytes = buffer.write(value, at + 4, 'utf8');
    buffer.writeInt32BE(bytes, at);
    at += 4 + bytes;
  }
  return buffer.subarray(0, at);
}

export function byteas(values: Nullable<Uint8Array>): Buffer | null {
  let bytes = 0;
  let some = false;
  for (const value of values) {
    if (value === null) continue;
    some = true;
    bytes += value.length;
  }
  if (!some) return null;
  const buffer = allocate(OIDS.bytea, values, bytes);
  let at = HEAD_BYTES;
  for (const value of values) {
    at = buffer.writeInt32BE(value === null ? -1 : value.length, at);
    if (value === null) continue;
    buffer.set(value, at);
    at += value.length;
  }
  return buffer.subarray(0, at);
}
