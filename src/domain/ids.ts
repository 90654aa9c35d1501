/**
 * Ids: a prefix and 26 time-ordered Crockford characters, 10 of Unix milliseconds and 16 of randomness.
 * The 16 are hexadecimal digits, a subset of Crockford's alphabet, so that SQL makes the same ids cheaply
 * (migrations/0001_core.sql).
 */
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

export type IdPrefix = 'evt' | 'ep' | 'dlv' | 'att' | 'rpl' | 'key' | 'sec' | 'dsp' | 'req';

/** `prefix_` + time + randomness. `randomHex` is 16 hexadecimal digits. */
export function makeId(prefix: IdPrefix, atMs: number, randomHex: string): string {
  let time = '';
  let rest = Math.floor(atMs);
  for (let i = 0; i < 10; i++) {
    time = CROCKFORD[rest % 32] + time;
    rest = Math.floor(rest / 32);
  }
  return `${prefix}_${time}${randomHex.toUpperCase()}`;
}

/** Whether the text has the form of an id with this prefix. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-9A-HJKMNP-TV-Z]{26}$/.test(text.slice(prefix.length + 1));
}

/** Unix milliseconds kept in an id, or null when it is not one of ours. */
export function idTimeMs(id: string): number | null {
  const match = /^[a-z]{2,3}_([0-9A-HJKMNP-TV-Z]{10})[0-9A-HJKMNP-TV-Z]{16}$/.exec(id);
  if (!match) return null;
  let ms = 0;
  for (const c of match[1]!) ms = ms * 32 + CROCKFORD.indexOf(c);
  return ms < 2 ** 48 ? ms : null;
}
