/** Just enough DER (ITU-T X.690) to write X.509 certificates in tests. */

/** One tag-length-value. */
export function tlv(tag: number, ...content: Buffer[]): Buffer {
  const body = Buffer.concat(content);
  if (body.length < 0x80) return Buffer.concat([Buffer.from([tag, body.length]), body]);
  const size: number[] = [];
  for (let n = body.length; n > 0; n >>= 8) size.unshift(n & 0xff);
  return Buffer.concat([Buffer.from([tag, 0x80 | size.length, ...size]), body]);
}

export const sequence = (...parts: Buffer[]) => tlv(0x30, ...parts);
export const set = (...parts: Buffer[]) => tlv(0x31, ...parts);
export const octets = (bytes: Buffer) => tlv(0x04, bytes);
export const bitString = (bytes: Buffer) => tlv(0x03, Buffer.from([0]), bytes);
export const utf8 = (text: string) => tlv(0x0c, Buffer.from(text));
export const boolean = (value: boolean) => tlv(0x01, Buffer.from([value ? 0xff : 0]));

/** A non-negative integer of any size, big-endian. */
export function integer(bytes: Buffer): Buffer {
  return tlv(0x02, (bytes[0] as number) & 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes);
}

/** UTCTime or, from 2050 on, GeneralizedTime. */
export function time(date: Date): Buffer {
  const text = date.toISOString().replace(/[-:T]/g, '').slice(0, 14);
  const utc = date.getUTCFullYear() < 2050;
  return tlv(utc ? 0x17 : 0x18, Buffer.from(`${utc ? text.slice(2) : text}Z`));
}

/** Dotted object identifier. */
export function oid(dotted: string): Buffer {
  const [first, second, ...rest] = dotted.split('.').map(Number) as [number, number, ...number[]];
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let n = part >> 7; n > 0; n >>= 7) groups.unshift((n & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tlv(0x06, Buffer.from(bytes));
}
