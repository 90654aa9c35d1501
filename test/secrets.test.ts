import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { keyIdOf, parseMasterKeys, SealError, sealingAad } from '../src/secrets.ts';

const key = () => randomBytes(32).toString('base64');
const first = `k1:${key()}`;
const second = `k2:${key()}`;
const aad = sealingAad('signing-secret', 'acme', 'ep_1', 'sec_1');

describe('sealing', () => {
  test('opens what was sealed, whatever it is', () => {
    const keys = parseMasterKeys(first);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const plain = Buffer.from(bytes);
        expect(keys.open(keys.seal(plain, aad), aad)).toEqual(plain);
      }),
    );
  });

  test('never gives the same bytes twice', () => {
    const keys = parseMasterKeys(first);
    expect(keys.seal(Buffer.from('x'), aad)).not.toEqual(keys.seal(Buffer.from('x'), aad));
  });

  test('does not open in another place', () => {
    const keys = parseMasterKeys(first);
    const sealed = keys.seal(Buffer.from('x'), aad);
    for (const other of [
      sealingAad('signing-secret', 'other', 'ep_1', 'sec_1'),
      sealingAad('signing-secret', 'acme', 'ep_2', 'sec_1'),
      sealingAad('signing-secret', 'acme', 'ep_1', 'sec_2'),
      sealingAad('custom-headers', 'acme', 'ep_1', 'sec_1'),
    ]) {
      expect(() => keys.open(sealed, other)).toThrow(SealError);
    }
  });

  test('notices every changed byte and every shortening', () => {
    const keys = parseMasterKeys(`${first},${second}`);
    const sealed = keys.seal(Buffer.from('secret'), aad);
    for (let i = 0; i < sealed.length; i++) {
      const changed = Buffer.from(sealed);
      changed[i] = (changed[i] as number) ^ 1;
      expect(() => keys.open(changed, aad)).toThrow(SealError);
      expect(() => keys.open(sealed.subarray(0, i), aad)).toThrow(SealError);
    }
  });

  test('keeps places apart whose parts run together', () => {
    expect(sealingAad('a', 'bc', 'd', 'e')).not.toBe(sealingAad('ab', 'c', 'd', 'e'));
  });
});

describe('master keys', () => {
  test('rotate: the newest seals, the older ones still open', () => {
    const old = parseMasterKeys(first).seal(Buffer.from('x'), aad);
    const both = parseMasterKeys(`${second}, ${first}`);
    expect(both.ids).toEqual(['k2', 'k1']);
    expect(both.open(old, aad).toString()).toBe('x');
    expect(keyIdOf(old)).toBe('k1');
    expect(keyIdOf(both.seal(Buffer.from('x'), aad))).toBe('k2');
  });

  test('that are missing are named', () => {
    const sealed = parseMasterKeys(first).seal(Buffer.from('x'), aad);
    expect(() => parseMasterKeys(second).open(sealed, aad)).toThrow('"k1" is not loaded');
  });

  test.each([
    ['', 'item 1'],
    ['nokey', 'item 1'],
    [`${first},:${key()}`, 'item 2'],
    ['k1:c2hvcnQ=', '"k1" is not 32 bytes'],
    [`${first},k1:${key()}`, '"k1" occurs twice'],
  ])('%j is refused with the item that is wrong', (text, message) => {
    expect(() => parseMasterKeys(text)).toThrow(message);
  });

  test('never appear in an error', () => {
    const bad = 'k1:AAAAAAAAsecretAAAA';
    expect(() => parseMasterKeys(bad)).toThrow(expect.not.stringContaining('secret') as unknown as string);
  });
});
