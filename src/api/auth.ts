/**
 * Bearer keys `phk_<id>_<secret>`: 32 random bytes, of which only the SHA-256 is kept (a slow hash protects weak
 * secrets; these are not). Every refusal costs one query and the same comparisons, whether or not the id exists.
 * A key that was good stays good for up to a second, so that the hot path asks PostgreSQL rarely.
 */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { deleteKeyByDigest, findKeys, replaceKey } from '../db/keys.ts';
import type { Db } from '../db/pool.ts';
import { ProblemError } from '../errors.ts';
import { newId } from '../ids.ts';

/** The id of the key that comes from the environment. */
export const ADMIN_KEY_ID = 'key_admin';
const CACHE_MS = 1_000;
const CACHE_MAX = 1_000;
const OWN_FORM = /^phk_([0-9A-HJKMNP-TV-Z]{26})_[A-Za-z0-9_-]{43}$/;
const NOBODY = Buffer.alloc(32);

/** A new key and what is stored of it. */
export function generateKey(): { id: string; key: string; digest: Buffer; last4: string } {
  const id = newId('key');
  const key = `phk_${id.slice('key_'.length)}_${randomBytes(32).toString('base64url')}`;
  return { id, key, digest: digestOf(key), last4: key.slice(-4) };
}

/** Makes `key` the admin key, and any earlier admin key void. Called at start-up, before the API listens. */
export async function ensureAdminKey(db: Db, key: string): Promise<void> {
  const digest = digestOf(key);
  await deleteKeyByDigest(db, digest, ADMIN_KEY_ID);
  await replaceKey(db, { id: ADMIN_KEY_ID, digest, name: 'admin', last4: key.slice(-4) });
}

export interface Authenticator {
  /** The id of the key; a 401 problem when there is none. Synchronous for a key seen within the last second. */
  check(authorization: string | undefined): string | Promise<string>;
  /** Forgets what was seen of a key: it was revoked here. */
  forget(id: string): void;
}

export function createAuthenticator(db: Db): Authenticator {
  const seen = new Map<string, { id: string; until: number }>();
  const asked = new Map<string, Promise<string>>();

  const ask = async (key: string, digest: Buffer, name: string): Promise<string> => {
    const own = OWN_FORM.exec(key);
    const ids = [own === null ? 'key_none' : `key_${own[1]}`, ADMIN_KEY_ID];
    const rows = await findKeys(db, ids);
    let found: string | null = null;
    for (const id of ids) {
      const stored = rows.find((row) => row.id === id)?.digest ?? NOBODY;
      if (timingSafeEqual(stored, digest)) found ??= id;
    }
    if (found === null) throw unauthorized('the key is not valid', 'invalid_token');
    if (seen.size >= CACHE_MAX) seen.clear();
    seen.set(name, { id: found, until: performance.now() + CACHE_MS });
    return found;
  };

  return {
    check(authorization) {
      if (authorization === undefined) throw unauthorized('no key was sent');
      const match = /^bearer +([\x21-\x7e]{1,512}) *$/i.exec(authorization);
      if (match === null)
        throw unauthorized('the header is not of the form "Bearer <key>"', 'invalid_request');
      const key = match[1] as string;
      const name = hash('sha256', key, 'hex');
      const known = seen.get(name);
      if (known !== undefined && known.until > performance.now()) return known.id;
      let answer = asked.get(name);
      if (answer === undefined) {
        answer = ask(key, digestOf(key), name).finally(() => asked.delete(name));
        asked.set(name, answer);
      }
      return answer;
    },
    forget(id) {
      for (const [name, entry] of seen) if (entry.id === id) seen.delete(name);
    },
  };
}

function digestOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

function unauthorized(detail: string, error?: string): ProblemError {
  const challenge = `Bearer realm="posthaste"${error === undefined ? '' : `, error="${error}"`}`;
  return new ProblemError('unauthorized', detail, { headers: { 'www-authenticate': challenge } });
}
