/**
 * What is kept of a response body: a prefix of 16 KiB, as bytes and as text that PostgreSQL accepts. Nothing is
 * ever inflated. Called by attempt.ts per chunk. Sizes are bytes.
 */

/** Kept of a body. */
export const BODY_STORED = 16 * 1024;
/** Read of a body before the connection is given up; up to here it can be reused. */
export const BODY_READ = 64 * 1024;

const EMPTY = Buffer.alloc(0);

/** A body being read. */
export interface BodyPrefix {
  readonly chunks: Buffer[];
  stored: number;
  total: number;
}

/** Nothing read yet. */
export function emptyBody(): BodyPrefix {
  return { chunks: [], stored: 0, total: 0 };
}

/** Takes a chunk. @returns false when more was read than is worth reading. */
export function addChunk(body: BodyPrefix, chunk: Buffer): boolean {
  const room = BODY_STORED - body.stored;
  if (room > 0) {
    const part = chunk.length > room ? chunk.subarray(0, room) : chunk;
    body.chunks.push(part);
    body.stored += part.length;
  }
  body.total += chunk.length;
  return body.total <= BODY_READ;
}

/** The kept bytes, in memory of their own, so that a small prefix does not pin a large network buffer. */
export function storedBytes(body: BodyPrefix): Buffer {
  return body.stored === 0 ? EMPTY : Buffer.concat(body.chunks, body.stored);
}

/**
 * Bytes as text that can be stored and shown: invalid UTF-8 becomes U+FFFD, NUL is dropped.
 * @param cut the bytes end somewhere in a larger body: a character that was cut in two is left out.
 */
export function bodyText(bytes: Buffer, cut: boolean): string {
  if (bytes.length === 0) return '';
  const text = bytes.toString('utf8', 0, cut ? wholeCharacters(bytes) : bytes.length);
  return text.includes('\0') ? text.replaceAll('\0', '') : text;
}

/** Length without an incomplete UTF-8 sequence at the end (RFC 3629 section 3). */
function wholeCharacters(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] as number;
    if (byte < 0x80) return bytes.length;
    if (byte >= 0xc0) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return size > back ? bytes.length - back : bytes.length;
    }
  }
  return bytes.length;
}
