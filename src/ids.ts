/** New ids, with the clock and randomness that src/domain may not touch. */
import { randomFillSync } from 'node:crypto';
import { type IdPrefix, makeId } from './domain/ids.ts';

const pool = Buffer.alloc(8192);
let used = pool.length;

/** A new id such as `evt_0DJ2…`. Randomness is drawn 8 KiB at a time: one system call per 1,000 ids. */
export function newId(prefix: IdPrefix, atMs: number = Date.now()): string {
  if (used + 8 > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const hex = pool.toString('hex', used, used + 8);
  used += 8;
  return makeId(prefix, atMs, hex);
}
