import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  checkCustomHeaders,
  checkHeadFits,
  deliveryHeaders,
  HEAD_MAX,
  requestHeadBytes,
} from '../../src/domain/headers.ts';

const HEAD = {
  userAgent: 'Posthaste/0.1',
  contentType: 'application/json',
  id: 'evt_1',
  timestampSeconds: 1_700_000_000,
  signature: 'v1,abc',
};

describe('custom headers', () => {
  test('may authenticate us at the receiver', () => {
    expect(checkCustomHeaders({ Authorization: 'Bearer abc', 'X-Tenant-Id': '7' })).toEqual({ ok: true });
  });

  test.each([
    'Host',
    'Connection',
    'keep-alive',
    'TE',
    'transfer-encoding',
    'Upgrade',
    'expect',
    'Content-Length',
    'content-type',
    'webhook-id',
    'Cookie',
    'set-cookie',
    'Forwarded',
    'X-Forwarded-For',
    'via',
    'proxy-authorization',
    'traceparent',
    'tracestate',
    'baggage',
    'user-agent',
  ])('may not be called %s', (field) => {
    expect(checkCustomHeaders({ [field]: 'x' })).toMatchObject({ ok: false, field });
  });

  test.each(['x_underscore', 'x.dot', '', 'x y', 'x:', '-x', 'é', 'x\r\n', 'a'.repeat(65)])(
    'may not have the name %j',
    (field) => {
      expect(checkCustomHeaders({ [field]: 'x' })).toMatchObject({ ok: false });
    },
  );

  test.each(['', ' x', 'x ', 'é', 'a\r\nb: c', 'a\tb', '\u0000'])('may not have the value %j', (value) => {
    expect(checkCustomHeaders({ 'x-test': value })).toMatchObject({ ok: false, field: 'x-test' });
  });

  test('may have values of 1 KiB, not more', () => {
    expect(checkCustomHeaders({ 'x-test': 'x'.repeat(1024) })).toEqual({ ok: true });
    expect(checkCustomHeaders({ 'x-test': 'x'.repeat(1025) })).toMatchObject({ ok: false, field: 'x-test' });
  });

  test('are bounded in number and in size', () => {
    const many = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`x-${i}`, 'v']));
    expect(checkCustomHeaders(many(20))).toEqual({ ok: true });
    expect(checkCustomHeaders(many(21))).toMatchObject({ ok: false });
    expect(checkCustomHeaders({ 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000) })).toEqual({ ok: true });
    expect(
      checkCustomHeaders({ 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000), 'x-c': 'v'.repeat(50) }),
    ).toMatchObject({
      ok: false,
      field: 'x-c',
    });
  });

  test('may not be given twice in different case', () => {
    expect(checkCustomHeaders({ 'x-a': '1', 'X-A': '2' })).toMatchObject({ ok: false, field: 'X-A' });
  });

  test('that pass are always writable as HTTP/1.1', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.string(), { maxKeys: 3 }), (headers) => {
        if (!checkCustomHeaders(headers).ok) return;
        for (const [name, value] of Object.entries(headers))
          expect(`${name}: ${value}`).toMatch(/^[\x20-\x7e]+$/);
      }),
    );
  });
});

describe('the head', () => {
  test('has ours first, then the custom headers, all in lower case', () => {
    const list = deliveryHeaders({ ...HEAD, custom: { 'X-Tenant': '7' } });
    expect(list.map(([name]) => name)).toEqual([
      'user-agent',
      'content-type',
      'accept-encoding',
      'webhook-id',
      'webhook-timestamp',
      'webhook-signature',
      'x-tenant',
    ]);
    expect(deliveryHeaders({ ...HEAD, traceparent: '00-1-1-00' })).toContainEqual([
      'traceparent',
      '00-1-1-00',
    ]);
  });

  test('is measured to the byte', () => {
    const list = deliveryHeaders(HEAD);
    const lines = [
      'POST /in?x=1 HTTP/1.1',
      'host: hooks.example.com',
      'connection: keep-alive',
      ...list.map(([name, value]) => `${name}: ${value}`),
      'content-length: 12',
    ];
    expect(requestHeadBytes('/in?x=1', 'hooks.example.com', list, 12)).toBe(
      `${lines.join('\r\n')}\r\n\r\n`.length,
    );
  });

  test('that could overflow is refused on write', () => {
    expect(
      checkHeadFits('https://hooks.example.com/in', { 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000) }),
    ).toEqual({ ok: true });
    const long = `https://hooks.example.com/${'p'.repeat(1900)}`;
    expect(checkHeadFits(long, {})).toEqual({ ok: true });
    const two = { 'x-a': 'v'.repeat(1000), 'x-b': 'v'.repeat(1000) };
    expect(checkHeadFits(long, two)).toMatchObject({ ok: false, field: 'x-b' });
  });

  test('stays within the limit for every attempt of an endpoint that was accepted', () => {
    const url = `https://hooks.example.com/${'p'.repeat(1200)}`;
    const custom = { 'x-a': 'v'.repeat(900) };
    expect(checkHeadFits(url, custom)).toEqual({ ok: true });
    const list = deliveryHeaders({
      ...HEAD,
      id: 'x'.repeat(64),
      signature: `v1a,${'x'.repeat(88)} `.repeat(5).trim(),
      custom,
    });
    expect(requestHeadBytes(`/${'p'.repeat(1200)}`, 'hooks.example.com', list, 262_144)).toBeLessThanOrEqual(
      HEAD_MAX,
    );
  });
});
