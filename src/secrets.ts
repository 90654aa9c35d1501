/**
 * Sealing of secrets at rest: AES-256-GCM under one of several master keys. The newest key seals, every loaded
 * key opens, so that keys rotate without a stop. The AAD binds a sealed value to its place (purpose, tenant,
 * endpoint, secret id): a row copied elsewhere does not open. Called by the API, the sender and `re-seal`.
 * Form of a sealed value: version (1 byte), length of the key id (1), key id, IV (12), ciphertext, tag (16).
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const VERSION = 1;
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** A fault of sealed data or of the configured keys: ours, never the receiver's. The message holds no secret. */
export class SealError extends Error {
  override readonly name = 'SealError';
}

/** The loaded master keys. `seal` uses the newest, `open` whichever the value names. */
export interface MasterKeys {
  /** Newest first. */
  readonly ids: readonly string[];
  /** @param aad from sealingAad; the same text is needed to open. */
  seal(plaintext: Buffer, aad: string): Buffer;
  /** @throws SealError when the key is not loaded, or when value, key or place do not match. */
  open(sealed: Buffer, aad: string): Buffer;
}

/**
 * Parses POSTHASTE_MASTER_KEYS: `id:base64,id2:base64`, newest first; each key has 32 bytes.
 * @throws SealError that names the id, or the position when there is none, and the command that makes a key.
 */
export function parseMasterKeys(text: string): MasterKeys {
  const keys = new Map<string, Buffer>();
  const parts = text.split(',').map((part) => part.trim());
  for (const [index, part] of parts.entries()) {
    const match = /^([A-Za-z0-9_-]{1,32}):(.+)$/.exec(part);
    if (!match) {
      throw new SealError(
        `POSTHASTE_MASTER_KEYS: item ${index + 1} is not id:base64 (make a key with: openssl rand -base64 32)`,
      );
    }
    const id = match[1] as string;
    const key = Buffer.from(match[2] as string, 'base64');
    if (key.length !== KEY_BYTES || key.toString('base64') !== match[2]) {
      throw new SealError(
        `POSTHASTE_MASTER_KEYS: key "${id}" is not 32 bytes of base64 (openssl rand -base64 32)`,
      );
    }
    if (keys.has(id))
      throw new SealError(`POSTHASTE_MASTER_KEYS: id "${id}" occurs twice; give the new key a new id`);
    keys.set(id, key);
  }
  return {
    ids: [...keys.keys()],
    seal: (plaintext, aad) => seal(keys, plaintext, aad),
    open: (sealed, aad) => open(keys, sealed, aad),
  };
}

/**
 * The AAD of a secret: no two places share it, since every part is length-prefixed.
 * @param purpose for example `signing-secret`, `custom-headers`, `client-key`.
 */
export function sealingAad(purpose: string, tenant: string, endpoint: string, secretId: string): string {
  return [purpose, tenant, endpoint, secretId].map((part) => `${Buffer.byteLength(part)}:${part}`).join('');
}

// A random 96-bit IV is safe for about 2^32 values per key (NIST SP 800-38D, 8.3).
function seal(keys: ReadonlyMap<string, Buffer>, plaintext: Buffer, aad: string): Buffer {
  const [id, key] = keys.entries().next().value as [string, Buffer];
  const head = header(id);
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES });
  cipher.setAAD(boundAad(head, aad));
  const body = Buffer.concat([cipher.update(plaintext), cipher.final()]);
  return Buffer.concat([head, iv, body, cipher.getAuthTag()]);
}

function open(keys: ReadonlyMap<string, Buffer>, sealed: Buffer, aad: string): Buffer {
  const id = keyIdOf(sealed);
  const key = keys.get(id);
  if (!key) throw new SealError(`master key "${id}" is not loaded; add it to POSTHASTE_MASTER_KEYS`);
  const head = header(id);
  const iv = sealed.subarray(head.length, head.length + IV_BYTES);
  // Without authTagLength Node accepts shortened tags.
  const decipher = createDecipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES });
  decipher.setAAD(boundAad(head, aad));
  decipher.setAuthTag(sealed.subarray(sealed.length - TAG_BYTES));
  const body = sealed.subarray(head.length + IV_BYTES, sealed.length - TAG_BYTES);
  try {
    return Buffer.concat([decipher.update(body), decipher.final()]);
  } catch {
    throw new SealError(
      `a value sealed under "${id}" does not open: it was altered, moved or sealed by another key`,
    );
  }
}

/**
 * The id of the key a value is sealed under; for counting rows per key and for re-sealing.
 * @throws SealError when it is no sealed value of a known version.
 */
export function keyIdOf(sealed: Buffer): string {
  const length = sealed[1] ?? 0;
  if (sealed[0] !== VERSION || length === 0 || sealed.length < 2 + length + IV_BYTES + TAG_BYTES) {
    throw new SealError('not a sealed value of version 1; was it written by a newer Posthaste?');
  }
  return sealed.toString('latin1', 2, 2 + length);
}

function header(id: string): Buffer {
  return Buffer.from(`${String.fromCharCode(VERSION, id.length)}${id}`, 'latin1');
}

/** Version and key id are authenticated too. */
function boundAad(head: Buffer, aad: string): Buffer {
  return Buffer.concat([head, Buffer.from(aad)]);
}
