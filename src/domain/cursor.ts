/**
 * Page cursors: base64url of [version, resource, hash of the filters, position…]. Opaque to callers; a cursor of
 * another list, of other filters or of another version is refused instead of answering a wrong page.
 * Called by every list of the API. A cursor grants nothing: the tenant is among the filters and in each query.
 */

const VERSION = 1;
const MAX_LENGTH = 512;

/** `filters` is anything that must be the same on the next page; `position` is the last row of this one. */
export function encodeCursor(resource: string, filters: unknown, position: readonly string[]): string {
  const text = JSON.stringify([VERSION, resource, hash(JSON.stringify(filters)), ...position]);
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** The position, or null when the cursor is not one of this list with these filters. */
export function decodeCursor(
  cursor: string,
  resource: string,
  filters: unknown,
  parts: number,
): string[] | null {
  if (cursor.length > MAX_LENGTH || !/^[A-Za-z0-9_-]+$/.test(cursor)) return null;
  let value: unknown;
  try {
    value = JSON.parse(atob(cursor.replaceAll('-', '+').replaceAll('_', '/')));
  } catch {
    return null;
  }
  if (!Array.isArray(value) || value.length !== 3 + parts) return null;
  const [version, of, filterHash, ...position] = value;
  if (version !== VERSION || of !== resource || filterHash !== hash(JSON.stringify(filters))) return null;
  return position.every((part) => typeof part === 'string' && PRINTABLE.test(part)) ? position : null;
}

const PRINTABLE = /^[\x20-\x7e]{1,128}$/;

/** FNV-1a, 32 bits: tells filters apart by accident, not against an enemy, who gains nothing here. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  }
  return value.toString(36);
}
