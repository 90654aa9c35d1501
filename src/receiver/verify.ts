/**
 * Checks that a request is a webhook its sender really signed, per Standard Webhooks: for the receiver's code, on the
 * body exactly as it arrived. Called by whoever receives (`posthaste/receiver`) and by our demo receiver; it imports
 * nothing of ours, so that it can be read, or copied, alone.
 */
import {
  createHmac,
  createPublicKey,
  type KeyObject,
  timingSafeEqual,
  verify as verifySignature,
} from 'node:crypto';

export interface VerifyInput {
  /** The raw bytes, or their text; never a parsed and re-serialised body. */
  body: Uint8Array | string;
  /** A `Headers`, or an object such as Node's `request.headers`; the case of names does not matter. */
  headers: HeaderSource;
  /** `whsec_…`, or `whpk_…` for asymmetric signatures; several while secrets are rotated. */
  secret: string | readonly string[];
  /** How far the timestamp may be from now, either way: 5 minutes unless said otherwise. */
  toleranceSeconds?: number;
  /** Epoch milliseconds, for tests. */
  now?: number;
}

export type HeaderSource =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifiedWebhook {
  /** The event's id: the same for every repeat, so remember it to handle each event once. */
  id: string;
  /** When this attempt was signed. */
  timestamp: Date;
}

export type VerificationCode =
  | 'missing_header'
  | 'bad_timestamp'
  | 'timestamp_too_old'
  | 'timestamp_too_new'
  | 'no_matching_signature'
  | 'bad_secret';

/** Answer 401 to `VerificationError`; only `bad_secret` is a fault of the receiver's own configuration. */
export class VerificationError extends Error {
  override readonly name = 'VerificationError';
  readonly code: VerificationCode;
  constructor(code: VerificationCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** @throws VerificationError when anything about the request is not as its sender must have made it. */
export function verify(input: VerifyInput): VerifiedWebhook {
  const { headers, toleranceSeconds = 300, now = Date.now() } = input;
  const id = header(headers, 'webhook-id');
  const timestampText = header(headers, 'webhook-timestamp');
  const signatures = header(headers, 'webhook-signature');
  if (!/^\d{1,12}$/.test(timestampText)) {
    throw new VerificationError('bad_timestamp', 'webhook-timestamp is not a whole number of seconds');
  }
  const timestamp = Number(timestampText);
  const age = now / 1000 - timestamp;
  if (age > toleranceSeconds) {
    throw new VerificationError('timestamp_too_old', `webhook-timestamp is ${Math.round(age)} s old`);
  }
  if (age < -toleranceSeconds) {
    throw new VerificationError('timestamp_too_new', `webhook-timestamp is ${Math.round(-age)} s ahead`);
  }
  const body = typeof input.body === 'string' ? Buffer.from(input.body) : input.body;
  const signed = Buffer.concat([Buffer.from(`${id}.${timestampText}.`), body]);
  const keys = [input.secret].flat().map(parseKey);
  for (const item of signatures.split(' ')) {
    const [version, signature = ''] = item.split(',', 2);
    if (keys.some((key) => key.version === version && matches(key, signed, signature))) {
      return { id, timestamp: new Date(timestamp * 1000) };
    }
  }
  throw new VerificationError(
    'no_matching_signature',
    'no signature matches: the secret is another endpoint’s, or the body was changed before it was checked',
  );
}

interface Key {
  version: 'v1' | 'v1a';
  key: Buffer | KeyObject;
}

// SubjectPublicKeyInfo of ed25519 (RFC 8410 section 4): this header, then the 32 raw bytes.
const ED25519_HEADER = Buffer.from('302a300506032b6570032100', 'hex');

function parseKey(secret: string): Key {
  const match = /^(whsec|whpk)_([A-Za-z0-9+/]+={0,2})$/.exec(secret);
  const bytes = Buffer.from(match?.[2] ?? '', 'base64');
  if (match?.[1] === 'whsec' && bytes.length > 0) return { version: 'v1', key: bytes };
  if (match?.[1] === 'whpk' && bytes.length === 32) {
    const key = createPublicKey({ key: Buffer.concat([ED25519_HEADER, bytes]), format: 'der', type: 'spki' });
    return { version: 'v1a', key };
  }
  throw new VerificationError(
    'bad_secret',
    'the secret is neither whsec_ and base64 nor whpk_ and 32 bytes of base64',
  );
}

function matches({ version, key }: Key, signed: Buffer, signature: string): boolean {
  const given = Buffer.from(signature, 'base64');
  if (version === 'v1a') return given.length === 64 && verifySignature(null, signed, key as KeyObject, given);
  const wanted = createHmac('sha256', key).update(signed).digest();
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}

function header(headers: HeaderSource, name: string): string {
  const value =
    typeof headers.get === 'function' ? headers.get(name) : lookUp(headers as Record<string, unknown>, name);
  if (typeof value !== 'string' || value === '') {
    throw new VerificationError('missing_header', `${name} is missing`);
  }
  return value;
}

function lookUp(headers: Record<string, unknown>, name: string): unknown {
  const value = headers[name] ?? Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return Array.isArray(value) ? value[0] : value;
}
