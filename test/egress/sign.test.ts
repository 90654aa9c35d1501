import { createPublicKey, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import {
  formatSecret,
  generateSecret,
  parseSecret,
  publicKey,
  type SigningSecret,
  signatureHeader,
} from '../../src/egress/sign.ts';

interface Case {
  readonly secret: string;
  readonly public?: string;
  readonly id: string;
  readonly timestamp: number;
  readonly body: string;
  readonly signature: string;
}
const { cases } = JSON.parse(readFileSync(new URL('../cases/signatures.json', import.meta.url), 'utf8')) as {
  cases: Case[];
};

describe('the case file', () => {
  test.each(cases)('signs $id with $secret', (row) => {
    const secret = parseSecret(row.secret);
    expect(signatureHeader([secret], row.id, row.timestamp, Buffer.from(row.body))).toBe(row.signature);
    if (row.public) expect(publicKey(secret)).toBe(row.public);
  });
});

describe('signing', () => {
  const body = Buffer.from('{"big":12345678901234567890}');

  test('is understood by the reference library', () => {
    const secret = generateSecret('hmac');
    const timestamp = Math.floor(Date.now() / 1000);
    const headers = {
      'webhook-id': 'evt_1',
      'webhook-timestamp': String(timestamp),
      'webhook-signature': signatureHeader([secret, generateSecret('ed25519')], 'evt_1', timestamp, body),
    };
    expect(() => new Webhook(formatSecret(secret)).verify(body.toString(), headers)).not.toThrow();
  });

  test('puts all v1 before all v1a, in the order of the secrets', () => {
    const secrets = ['ed25519', 'hmac', 'ed25519', 'hmac'].map((kind) =>
      generateSecret(kind as SigningSecret['kind']),
    );
    const parts = signatureHeader(secrets, 'evt_1', 1_700_000_000, body).split(' ');
    const alone = secrets.map((secret) => signatureHeader([secret], 'evt_1', 1_700_000_000, body));
    expect(parts).toEqual([alone[1], alone[3], alone[0], alone[2]]);
  });

  test('with ed25519 is verified by the public key that is shown', () => {
    const secret = generateSecret('ed25519');
    const signature = signatureHeader([secret], 'evt_1', 1_700_000_000, body).slice('v1a,'.length);
    const raw = Buffer.from(publicKey(secret).slice('whpk_'.length), 'base64');
    const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), raw]);
    const key = createPublicKey({ key: spki, format: 'der', type: 'spki' });
    const signed = Buffer.concat([Buffer.from('evt_1.1700000000.'), body]);
    expect(verify(null, signed, key, Buffer.from(signature, 'base64'))).toBe(true);
  });
});

describe('secrets', () => {
  test('survive their text form', () => {
    for (const kind of ['hmac', 'ed25519'] as const) {
      const secret = generateSecret(kind);
      expect(parseSecret(formatSecret(secret))).toEqual(secret);
    }
  });

  test('of ed25519 may be given as the 32-byte seed alone', () => {
    const secret = generateSecret('ed25519');
    const seed = parseSecret(`whsk_${secret.key.subarray(0, 32).toString('base64')}`);
    expect(publicKey(seed)).toBe(publicKey(secret));
  });

  test.each([
    ['whsec_', '24 to 64'],
    [`whsec_${Buffer.alloc(23).toString('base64')}`, 'this one has 23'],
    [`whsec_${Buffer.alloc(65).toString('base64')}`, 'this one has 65'],
    ['whsec_****', 'not padded base64'],
    [`whsk_${Buffer.alloc(31).toString('base64')}`, '32 or 64'],
    [`whsk_${Buffer.alloc(64).toString('base64')}`, 'does not belong'],
    ['sk_live', 'whsec_ (HMAC)'],
  ])('like %s are refused with a reason', (text, reason) => {
    expect(() => parseSecret(text)).toThrow(reason);
  });

  test('of HMAC have no public key', () => {
    expect(() => publicKey(generateSecret('hmac'))).toThrow('no public key');
  });
});
