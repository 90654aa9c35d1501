/** The mail's words hold whatever names, hosts and reasons they are made of. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { noticeMail, oneLine } from '../../src/domain/notice-mail.ts';

const KINDS = ['notice_24h', 'notice_72h', 'disabled', 'misconfigured', 'paused_long', 'recovered'];
const text = fc.string({ unit: 'binary', maxLength: 300 });
const facts = fc.record({
  kind: fc.constantFrom(...KINDS),
  endpoint: fc.constant('ep_01KD5V3Q9BC6PK4RVB9ZY3MXW8'),
  tenant: fc.constant('acme'),
  tenantName: fc.option(text),
  host: text,
  at: fc.constant('2026-01-31T12:00:00.000Z'),
  reason: text,
  disabledReason: fc.option(fc.constantFrom('gone', 'failing')),
  since: fc.option(fc.constant('2026-01-30T12:00:00.000Z')),
  until: fc.option(fc.constant('2026-02-01T12:00:00.000Z')),
  lastStatus: fc.option(fc.integer({ min: 100, max: 999 })),
  lastClass: fc.option(text),
  held: fc.nat(),
});
const UNSEEN = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u;

describe('mail about an endpoint', () => {
  it('has a subject of one short line, whatever the host', () => {
    fc.assert(
      fc.property(facts, (some) => {
        const { subject } = noticeMail(some);
        expect(subject).not.toMatch(UNSEEN);
        expect([...subject].length).toBeLessThan(150);
      }),
    );
  });

  it('has the same tags in its HTML, whatever the values', () => {
    const tags = (html: string): string => (html.match(/<[^>]*>/g) ?? []).join('');
    fc.assert(
      fc.property(facts, (some) => {
        const plain = { ...some, host: 'h', ...(some.tenantName === null ? {} : { tenantName: 'n' }) };
        const harmless = {
          ...plain,
          reason: oneLine(some.reason) === '' && some.reason === '' ? '' : 'r',
          lastClass: some.lastClass === null || some.lastClass === '' ? some.lastClass : 'c',
        };
        expect(tags(noticeMail(some).html)).toBe(tags(noticeMail(harmless).html));
      }),
    );
  });

  it('has a line of its own in the text for each fact', () => {
    fc.assert(
      fc.property(facts, (some) => {
        for (const line of noticeMail(some).text.split('\n')) expect(line).not.toMatch(UNSEEN);
      }),
    );
  });

  it('cuts long lines at a character', () => {
    expect(oneLine('😀'.repeat(200), 10)).toBe(`${'😀'.repeat(9)}…`);
    expect(oneLine(' a\r\n\tb\u202e ')).toBe('a b');
  });
});
