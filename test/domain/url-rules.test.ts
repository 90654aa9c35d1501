import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ALLOW_NOTHING, parseEgressAllow } from '../../src/domain/addresses.ts';
import { checkUrl } from '../../src/domain/url-rules.ts';

interface Case {
  readonly input: string;
  readonly kind: string;
  readonly verdict: 'allow' | 'deny';
  readonly why: string;
}
const { cases } = JSON.parse(readFileSync(new URL('../cases/ssrf.json', import.meta.url), 'utf8')) as {
  cases: Case[];
};
const urls = cases.filter((row) => row.kind === 'url');

describe('the case file', () => {
  test.each(urls)('judges $input to $verdict: $why', (row) => {
    expect(checkUrl(row.input, ALLOW_NOTHING).ok).toBe(row.verdict === 'allow');
  });

  test('odd spellings stay refused when the addresses they hide are allowed', () => {
    const everything = parseEgressAllow('0.0.0.0/0:*,[::/0]:*');
    const spellings = [
      '2130706433',
      '0177.0.0.1',
      '0x7f.1',
      '127.1',
      '0',
      '①②⑦.⓪.⓪.①',
      '%31%32%37.0.0.1',
      '127.0.0.1.',
    ];
    for (const host of spellings)
      expect(checkUrl(`https://${host}/`, everything)).toMatchObject({ ok: false });
  });
});

describe('what is stored', () => {
  test('is canonical, with the host in punycode', () => {
    expect(checkUrl('HTTPS://HOOKS.EXAMPLE.COM/In', ALLOW_NOTHING)).toMatchObject({
      href: 'https://hooks.example.com/In',
      host: 'hooks.example.com',
      port: 443,
      allowOnly: false,
    });
    expect(checkUrl('https://faß.de/in', ALLOW_NOTHING)).toMatchObject({ host: 'xn--fa-hia.de' });
  });

  test('passes the rules again and does not change again', () => {
    const url = fc.webUrl({ withQueryParameters: true }).map((text) => text.replace(/^http:/, 'https:'));
    fc.assert(
      fc.property(url, (text) => {
        const first = checkUrl(text, ALLOW_NOTHING);
        if (!first.ok) return;
        expect(checkUrl(first.href, ALLOW_NOTHING)).toEqual(first);
      }),
    );
  });

  test('never throws, whatever is typed', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(checkUrl(`https://${text}`, ALLOW_NOTHING)).toHaveProperty('ok');
      }),
    );
  });
});

describe('exceptions of the deployment', () => {
  const allow = parseEgressAllow('127.0.0.0/8:9000');

  test('permit plain http, a literal address and the port', () => {
    expect(checkUrl('http://127.0.0.1:9000/x', allow)).toMatchObject({
      ok: true,
      allowOnly: true,
      literal: '127.0.0.1',
    });
    expect(checkUrl('http://127.0.0.1:9001/x', allow).ok).toBe(false);
    expect(checkUrl('http://10.0.0.1:9000/x', allow).ok).toBe(false);
  });

  test('permit private names on the port, which must then lead to an allowed address', () => {
    expect(checkUrl('http://localhost:9000/x', allow)).toMatchObject({ ok: true, allowOnly: true });
    expect(checkUrl('http://receiver:9000/x', allow)).toMatchObject({ ok: true, allowOnly: true });
    expect(checkUrl('http://localhost/x', allow).ok).toBe(false);
  });

  test('leave public URLs as they are', () => {
    expect(checkUrl('https://hooks.example.com/', allow)).toMatchObject({ ok: true, allowOnly: false });
  });

  test('are not revealed by the reason of a refusal', () => {
    const refused = checkUrl('http://10.0.0.1:9000/', allow);
    expect(refused).toEqual(checkUrl('http://10.0.0.1:9000/', ALLOW_NOTHING));
  });
});
