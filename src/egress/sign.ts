/**
 * Standard Webhooks signatures: `v1` is HMAC-SHA256 over `id.timestamp.body`, `v1a` is ed25519 over the same
 * bytes. Called once per attempt, after every wait, on the exact Buffer that is sent. Timestamps are seconds.
 */
import type { KeyObject } from 'node:crypto';
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  randomBytes,
  sign,
} from 'node:crypto';
import { LRUCache } from 'lru-cache';

/** `key` is raw bytes: 24-64 for hmac; for ed25519 the 32-byte seed, or seed and public key (64). */
export interface SigningSecret {
  readonly kind: 'hmac' | 'ed25519';
  readonly key: Buffer;
}

const HMAC_MIN = 24;
const HMAC_MAX = 64;
const SEED_BYTES = 32;
// PKCS#8 header of an ed25519 seed (RFC 8410 section 7): SEQUENCE, version 0, OID 1.3.101.112, OCTET STRING.
const PKCS8_ED25519 = Buffer.from('302e020100300506032b657004220420', 'hex');
// SubjectPublicKeyInfo of ed25519 (RFC 8410 section 4) ends with the 32 raw bytes.
const SPKI_HEADER_BYTES = 12;

// Importing costs 41-380 us for ed25519, and a raw Buffer key makes HMAC 5 times dearer on Node 24.
const keysByObject = new WeakMap<SigningSecret, KeyObject>();
const ed25519ByBytes = new LRUCache<string, KeyObject>({ max: 2_000 });

function keyObject(secret: SigningSecret): KeyObject {
  const known = keysByObject.get(secret);
  if (known) return known;
  const key = secret.kind === 'hmac' ? createSecretKey(secret.key) : ed25519Key(secret.key);
  keysByObject.set(secret, key);
  return key;
}

function ed25519Key(bytes: Buffer): KeyObject {
  const seed = bytes.subarray(0, SEED_BYTES);
  const name = seed.toString('latin1');
  const known = ed25519ByBytes.get(name);
  if (known) return known;
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_ED25519, seed]), format: 'der', type: 'pkcs8' });
  ed25519ByBytes.set(name, key);
  return key;
}

/**
 * The value of `webhook-signature`: one signature per secret, all v1 before all v1a, space separated.
 * @param timestampSeconds whole seconds; the same number goes into `webhook-timestamp`.
 * @param body the exact bytes that are sent.
 */
export function signatureHeader(
  secrets: readonly SigningSecret[],
  id: string,
  timestampSeconds: number,
  body: Buffer,
): string {
  const prefix = `${id}.${timestampSeconds}.`;
  let v1 = '';
  let v1a = '';
  let signed: Buffer | undefined;
  for (let i = 0; i < secrets.length; i++) {
    const secret = secrets[i] as SigningSecret;
    if (secret.kind === 'hmac') {
      const mac = createHmac('sha256', keyObject(secret)).update(prefix).update(body).digest('base64');
      v1 += v1 === '' ? `v1,${mac}` : ` v1,${mac}`;
    } else {
      signed ??= Buffer.concat([Buffer.from(prefix), body]);
      const signature = sign(null, signed, keyObject(secret)).toString('base64');
      v1a += v1a === '' ? `v1a,${signature}` : ` v1a,${signature}`;
    }
  }
  if (v1a === '') return v1;
  return v1 === '' ? v1a : `${v1} ${v1a}`;
}

/** Strict base64: refuses what decoders would skip, so that two spellings never name one secret. */
function decode(text: string, what: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text) throw new Error(`${what} is not padded base64`);
  return bytes;
}

/**
 * Reads `whsec_…` (hmac, 24-64 bytes) or `whsk_…` (ed25519, 32 or 64 bytes) as customers import them.
 * @throws Error that says what is wrong; it never repeats the secret.
 */
export function parseSecret(text: string): SigningSecret {
  if (text.startsWith('whsec_')) {
    const key = decode(text.slice(6), 'the part after whsec_');
    if (key.length < HMAC_MIN || key.length > HMAC_MAX) {
      throw new Error(
        `a whsec_ secret must hold ${HMAC_MIN} to ${HMAC_MAX} bytes; this one has ${key.length}`,
      );
    }
    return { kind: 'hmac', key };
  }
  if (text.startsWith('whsk_')) {
    const key = decode(text.slice(5), 'the part after whsk_');
    if (key.length !== SEED_BYTES && key.length !== 2 * SEED_BYTES) {
      throw new Error(`a whsk_ secret must hold 32 or 64 bytes; this one has ${key.length}`);
    }
    const secret: SigningSecret = { kind: 'ed25519', key };
    if (key.length === 2 * SEED_BYTES && !key.subarray(SEED_BYTES).equals(publicBytes(secret))) {
      throw new Error('the public half of the whsk_ secret does not belong to its private half');
    }
    return secret;
  }
  throw new Error('a signing secret starts with whsec_ (HMAC) or whsk_ (ed25519)');
}

/** The text form that is shown once: `whsec_…` or `whsk_…`. */
export function formatSecret(secret: SigningSecret): string {
  return (secret.kind === 'hmac' ? 'whsec_' : 'whsk_') + secret.key.toString('base64');
}

/** A new secret: 32 random bytes for hmac, seed and public key (64 bytes) for ed25519. */
export function generateSecret(kind: SigningSecret['kind']): SigningSecret {
  const seed = randomBytes(SEED_BYTES);
  if (kind === 'hmac') return { kind, key: seed };
  return { kind, key: Buffer.concat([seed, publicBytes({ kind, key: seed })]) };
}

function publicBytes(secret: SigningSecret): Buffer {
  const spki = createPublicKey(keyObject(secret)).export({ format: 'der', type: 'spki' });
  return spki.subarray(SPKI_HEADER_BYTES);
}

/**
 * What a receiver needs to verify v1a: `whpk_` and the base64 of the 32 public bytes.
 * @throws Error for an hmac secret, which has no public half.
 */
export function publicKey(secret: SigningSecret): string {
  if (secret.kind !== 'ed25519') throw new Error('an HMAC secret has no public key; share the secret itself');
  return `whpk_${publicBytes(secret).toString('base64')}`;
}
