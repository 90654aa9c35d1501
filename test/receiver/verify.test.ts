import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';
import { VerificationError, type VerifyInput, verify } from '../../src/receiver/verify.ts';

interface Case {
  secret: string;
  public?: string;
  id: string;
  timestamp: number;
  body: string;
  signature: string;
}

const { cases } = JSON.parse(readFileSync(new URL('../cases/signatures.json', import.meta.url), 'utf8')) as {
  cases: Case[];
};

function inputOf(given: Case): VerifyInput & { headers: Record<string, string> } {
  return {
    body: given.body,
    headers: {
      'webhook-id': given.id,
      'webhook-timestamp': String(given.timestamp),
      'webhook-signature': given.signature,
    },
    secret: given.public ?? given.secret,
    now: given.timestamp * 1000,
  };
}

function codeOf(input: VerifyInput): string {
  try {
    verify(input);
    return 'accepted';
  } catch (error) {
    expect(error).toBeInstanceOf(VerificationError);
    return (error as VerificationError).code;
  }
}

const input = inputOf(cases[0]!);

describe('verify', () => {
  it.each(cases)('accepts the published signature $signature', (given) => {
    expect(verify(inputOf(given))).toEqual({ id: given.id, timestamp: new Date(given.timestamp * 1000) });
  });

  it.each(cases)('refuses $signature once one byte of the body changed', (given) => {
    expect(codeOf({ ...inputOf(given), body: `${given.body} ` })).toBe('no_matching_signature');
  });

  it('accepts what the published standardwebhooks library signs', () => {
    const now = new Date();
    const signature = new Webhook(input.secret as string).sign('msg_1', now, '{"ä":1}');
    const headers = new Headers({
      'Webhook-Id': 'msg_1',
      'Webhook-Timestamp': String(Math.floor(now.getTime() / 1000)),
      'Webhook-Signature': signature,
    });
    expect(verify({ body: Buffer.from('{"ä":1}'), headers, secret: input.secret }).id).toBe('msg_1');
  });

  it('accepts any of several secrets and any of several signatures', () => {
    const other = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX';
    const headers = {
      ...input.headers,
      'webhook-signature': `v1,AAAA v9,zzz ${input.headers['webhook-signature']}`,
    };
    expect(codeOf({ ...input, headers, secret: [other, input.secret as string] })).toBe('accepted');
    expect(codeOf({ ...input, secret: other })).toBe('no_matching_signature');
  });

  it('refuses a timestamp more than five minutes away, either way', () => {
    const now = input.now as number;
    expect(codeOf({ ...input, now: now + 300_000 })).toBe('accepted');
    expect(codeOf({ ...input, now: now + 301_000 })).toBe('timestamp_too_old');
    expect(codeOf({ ...input, now: now - 301_000 })).toBe('timestamp_too_new');
    expect(codeOf({ ...input, now: now + 301_000, toleranceSeconds: 600 })).toBe('accepted');
  });

  it.each([
    ['webhook-id', '', 'missing_header'],
    ['webhook-timestamp', '', 'missing_header'],
    ['webhook-signature', '', 'missing_header'],
    ['webhook-timestamp', '1e9', 'bad_timestamp'],
    ['webhook-timestamp', '-5', 'bad_timestamp'],
    ['webhook-signature', 'v1', 'no_matching_signature'],
    ['webhook-signature', 'v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=', 'no_matching_signature'],
  ])('answers %s "%s" with %s', (name, value, code) => {
    expect(codeOf({ ...input, headers: { ...input.headers, [name]: value } })).toBe(code);
  });

  it('takes header names in any case and headers with several values', () => {
    const headers = {
      'Webhook-Id': [input.headers['webhook-id']!],
      'WEBHOOK-TIMESTAMP': input.headers['webhook-timestamp'],
      'webhook-signature': input.headers['webhook-signature'],
    };
    expect(codeOf({ ...input, headers })).toBe('accepted');
  });

  it.each(['', 'whsec_', 'whsec_not base64', 'whpk_AAAA', 'secret'])(
    'calls the secret "%s" a bad one',
    (secret) => {
      expect(codeOf({ ...input, secret })).toBe('bad_secret');
    },
  );
});
