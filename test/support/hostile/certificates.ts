/**
 * A certificate factory for tests: authorities, intermediates and leaves with any fault, made in a millisecond
 * and without an openssl binary. ECDSA P-256 with SHA-256.
 */
import type { KeyObject } from 'node:crypto';
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { bitString, boolean, integer, octets, oid, sequence, set, time, tlv, utf8 } from './der.ts';

/** A certificate with its private key. */
export interface Identity {
  readonly name: string;
  readonly cert: string;
  readonly key: string;
  readonly privateKey: KeyObject;
}

/** What to put into a certificate. */
export interface CertificateRequest {
  readonly name: string;
  /** Who signs; without one the certificate signs itself. */
  readonly issuer?: Identity;
  /** DNS names and IPv4 addresses. */
  readonly hosts?: readonly string[];
  readonly authority?: boolean;
  /** Days from now. */
  readonly from?: number;
  readonly until?: number;
}

const DAY_MS = 86_400_000;
const ECDSA_SHA256 = sequence(oid('1.2.840.10045.4.3.2'));

/** Makes one certificate; valid from yesterday for ten days unless told otherwise. */
export function makeCertificate(request: CertificateRequest): Identity {
  const { name, issuer, hosts = [], authority = false, from = -1, until = 10 } = request;
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const now = Date.now();
  const body = sequence(
    tlv(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ECDSA_SHA256,
    commonName(issuer?.name ?? name),
    sequence(time(new Date(now + from * DAY_MS)), time(new Date(now + until * DAY_MS))),
    commonName(name),
    publicKey.export({ format: 'der', type: 'spki' }),
    tlv(0xa3, sequence(...extensions(hosts, authority))),
  );
  const signature = sign('sha256', body, issuer?.privateKey ?? privateKey);
  const der = sequence(body, ECDSA_SHA256, bitString(signature));
  const lines = der.toString('base64').replace(/.{64}/g, '$&\n');
  return {
    name,
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ format: 'pem', type: 'pkcs8' }) as string,
    privateKey,
  };
}

function commonName(name: string): Buffer {
  return sequence(set(sequence(oid('2.5.4.3'), utf8(name))));
}

function extensions(hosts: readonly string[], authority: boolean): Buffer[] {
  const list = [extension('2.5.29.19', true, sequence(...(authority ? [boolean(true)] : [])))];
  if (hosts.length > 0) {
    const names = hosts.map((host) =>
      isIPv4(host) ? tlv(0x87, Buffer.from(host.split('.').map(Number))) : tlv(0x82, Buffer.from(host)),
    );
    list.push(extension('2.5.29.17', false, sequence(...names)));
  }
  return list;
}

function extension(id: string, critical: boolean, value: Buffer): Buffer {
  return sequence(oid(id), ...(critical ? [boolean(true)] : []), octets(value));
}
