/** Bytes for people: as text when they are UTF-8, else as base64; nothing is ever replaced. */
import { isUtf8 } from 'node:buffer';

export function bodyText(bytes: Uint8Array): { body: string; body_encoding: 'text' | 'base64' } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(buffer)
    ? { body: buffer.toString('utf8'), body_encoding: 'text' }
    : { body: buffer.toString('base64'), body_encoding: 'base64' };
}
