/**
 * Where values lie in a JSON text, in bytes, so that a producer's `data` is kept exactly as it came: big integers,
 * spaces, key order, duplicate keys inside. A parser would lose all of that.
 * Called by event-input.ts and the API, always after JSON.parse accepted the same text: nothing is checked here.
 */

/** Bytes `start` (included) to `end` (excluded). */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** One member of an object; `key` is decoded, the span is its value. */
export interface Member extends Span {
  readonly key: string;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const COMMA = 0x2c;
const decoder = new TextDecoder();

/** The members of the object that begins at `from` (leading white space is skipped), duplicates included. */
export function memberSpans(text: Uint8Array, from = 0): Member[] {
  const members: Member[] = [];
  let at = skipSpace(text, skipSpace(text, from) + 1);
  while (text[at] !== CLOSE_OBJECT) {
    const keyEnd = skipString(text, at);
    const key = decodeKey(text, at, keyEnd);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1); // over the colon
    const end = skipValue(text, start);
    members.push({ key, start, end });
    at = skipSpace(text, end);
    if (text[at] === COMMA) at = skipSpace(text, at + 1);
  }
  return members;
}

/** The elements of the array that begins at `from`. */
export function elementSpans(text: Uint8Array, from = 0): Span[] {
  const elements: Span[] = [];
  let at = skipSpace(text, skipSpace(text, from) + 1);
  while (text[at] !== CLOSE_ARRAY) {
    const end = skipValue(text, at);
    elements.push({ start: at, end });
    at = skipSpace(text, end);
    if (text[at] === COMMA) at = skipSpace(text, at + 1);
  }
  return elements;
}

/** The first key that occurs twice, or null. */
export function duplicateKey(members: readonly Member[]): string | null {
  const seen = new Set<string>();
  for (const { key } of members) {
    if (seen.has(key)) return key;
    seen.add(key);
  }
  return null;
}

function skipSpace(text: Uint8Array, from: number): number {
  let at = from;
  for (let byte = text[at]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = text[at])
    at++;
  return at;
}

/** From an opening quote to behind the closing one. indexOf is memchr: long strings cost next to nothing. */
function skipString(text: Uint8Array, from: number): number {
  let at = from;
  for (;;) {
    at = text.indexOf(QUOTE, at + 1);
    if (at < 0) return text.length; // not JSON
    let before = at - 1;
    while (text[before] === BACKSLASH) before--;
    if ((at - before) % 2 === 1) return at + 1;
  }
}

function skipValue(text: Uint8Array, from: number): number {
  const first = text[from];
  if (first === QUOTE) return skipString(text, from);
  if (first === OPEN_OBJECT || first === OPEN_ARRAY) return skipNested(text, from);
  let at = from;
  while (at < text.length && !endsScalar(text[at] as number)) at++;
  return at;
}

function skipNested(text: Uint8Array, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const byte = text[at];
    if (byte === QUOTE) {
      at = skipString(text, at);
      continue;
    }
    at++;
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) depth++;
    else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && --depth === 0) return at;
  }
  return at;
}

function endsScalar(byte: number): boolean {
  return byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY || byte <= 0x20;
}

function decodeKey(text: Uint8Array, start: number, end: number): string {
  let key = '';
  for (let i = start + 1; i < end - 1; i++) {
    const byte = text[i] as number;
    if (byte === BACKSLASH || byte >= 0x80) return JSON.parse(decoder.decode(text.subarray(start, end)));
    key += String.fromCharCode(byte);
  }
  return key;
}
