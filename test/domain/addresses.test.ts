import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ALLOW_NOTHING,
  addressAllowed,
  isJudgedPeer,
  isPublicAddress,
  mayDial,
  parseEgressAllow,
  parseIp,
} from '../../src/domain/addresses.ts';

interface Case {
  readonly input: string;
  readonly kind: string;
  readonly verdict: 'allow' | 'deny';
  readonly why: string;
}
const cases = (
  JSON.parse(readFileSync(new URL('../cases/ssrf.json', import.meta.url), 'utf8')) as { cases: Case[] }
).cases;

describe('the case file', () => {
  test.each(cases.filter((row) => row.kind === 'ip'))('judges "$input" to $verdict: $why', (row) => {
    expect(isPublicAddress(row.input)).toBe(row.verdict === 'allow');
  });

  test.each(cases.filter((row) => row.kind === 'dns-answer'))(
    'judges the answer "$input" to $verdict: $why',
    (row) => {
      const dialled = (row.input.split('|').at(-1) as string).split(',').filter((ip) => ip !== '');
      const allowed = dialled.length > 0 && dialled.every((ip) => mayDial(ip, 443, false, ALLOW_NOTHING));
      expect(allowed).toBe(row.verdict === 'allow');
    },
  );
});

describe('metadata and node services are refused by name', () => {
  test.each([
    '169.254.169.254',
    '169.254.170.2',
    '169.254.170.23',
    'fd00:ec2::23',
    '169.254.169.253',
    'fd00:ec2::253',
    '169.254.169.123',
    'fd00:ec2::254',
    'fd20:ce::254',
    '100.100.100.200',
    '192.0.0.192',
    '168.63.129.16',
    '169.254.42.42',
    'fd00:42::42',
    'fe80::a9fe:a9fe',
  ])('%s', (ip) => expect(isPublicAddress(ip)).toBe(false));
});

describe('parsing', () => {
  test('accepts exactly the addresses that the operating system accepts, without zones', () => {
    const piece = fc.constantFrom(
      '0',
      '1',
      '255',
      '256',
      '00',
      'ffff',
      'a',
      '.',
      ':',
      '::',
      '7f00',
      '127',
      '%',
      ' ',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 14 }), (pieces) => {
        const text = pieces.join('');
        expect(parseIp(text) !== null).toBe(isIP(text) !== 0 && !text.includes('%'));
      }),
      { numRuns: 3_000 },
    );
  });

  test('gives the same words for every spelling of an IPv6 address', () => {
    fc.assert(
      fc.property(fc.ipV6(), (text) => {
        const canonical = new URL(`http://[${text}]/`).hostname.slice(1, -1);
        expect(parseIp(text)?.words).toEqual(parseIp(canonical)?.words);
      }),
    );
  });

  test('no IPv6 address that carries an IPv4 address is public, whatever it carries', () => {
    fc.assert(
      fc.property(
        fc.ipV4(),
        fc.constantFrom('::', '::ffff:', '64:ff9b::', '::ffff:0:', '2606:4700::5efe:'),
        (v4, head) => {
          expect(isPublicAddress(head + v4)).toBe(false);
        },
      ),
    );
  });

  test('recognises the peer that was judged, and no other', () => {
    expect(isJudgedPeer('127.0.0.1', ['127.0.0.9', '127.0.0.1'])).toBe(true);
    expect(isJudgedPeer('::ffff:127.0.0.1', ['127.0.0.1'])).toBe(true);
    expect(isJudgedPeer('2606:4700:0:0::1', ['2606:4700::1'])).toBe(true);
    expect(isJudgedPeer('10.0.0.1', ['127.0.0.1'])).toBe(false);
    expect(isJudgedPeer('nonsense', ['nonsense'])).toBe(false);
    expect(isJudgedPeer('127.0.0.1', [])).toBe(false);
  });
});

describe('EGRESS_ALLOW', () => {
  test('permits the network on the given port only', () => {
    const allow = parseEgressAllow('10.0.0.0/8:9000, [fd00::/8]:443,127.0.0.1:*');
    expect(addressAllowed('10.1.2.3', 9000, allow)).toBe(true);
    expect(addressAllowed('10.1.2.3', 9001, allow)).toBe(false);
    expect(addressAllowed('11.1.2.3', 9000, allow)).toBe(false);
    expect(addressAllowed('fd12::1', 443, allow)).toBe(true);
    expect(addressAllowed('127.0.0.1', 1, allow)).toBe(true);
    expect(addressAllowed('127.0.0.2', 1, allow)).toBe(false);
  });

  test('means the web ports when it names none', () => {
    const allow = parseEgressAllow('192.168.0.0/16,fd00::/8');
    for (const port of [80, 443, 8443]) expect(addressAllowed('192.168.1.1', port, allow)).toBe(true);
    expect(addressAllowed('192.168.1.1', 22, allow)).toBe(false);
    expect(addressAllowed('fd00::1', 443, allow)).toBe(true);
  });

  test('is empty when the text is', () => {
    expect(parseEgressAllow('')).toEqual(ALLOW_NOTHING);
    expect(parseEgressAllow(' , ')).toEqual(ALLOW_NOTHING);
  });

  test.each([
    '10.0.0.1/8',
    '10.0.0.0/33',
    'example.com',
    '1.2.3.4:0',
    '1.2.3.4:65536',
    '[::1',
    '010.0.0.0/8',
    '::1/129',
  ])('names the bad item %s', (item) =>
    expect(() => parseEgressAllow(`127.0.0.1:*,${item}`)).toThrow(`"${item}"`),
  );

  test('does not let a URL that needs an exception reach a public address', () => {
    const allow = parseEgressAllow('10.0.0.0/8:*');
    expect(mayDial('8.8.8.8', 443, false, allow)).toBe(true);
    expect(mayDial('8.8.8.8', 443, true, allow)).toBe(false);
    expect(mayDial('10.0.0.1', 80, true, allow)).toBe(true);
  });
});
