import { describe, expect, it } from 'vitest';
import { type FailingEndpoint, networkOf, siteOf, suspectUs } from '../../src/domain/us.ts';

const strangers = (count: number): FailingEndpoint[] =>
  Array.from({ length: count }, (_, i) => ({
    domain: `hooks.customer${i}.example`,
    address: `203.${Math.floor(i / 250)}.${i % 250}.7`,
  }));

describe('suspectUs', () => {
  it('suspects us when a fifth of all active endpoints fail, and at least fifty of them share nothing', () => {
    expect(suspectUs(strangers(50), 250)).toEqual({ suspect: true, independent: 50 });
    expect(suspectUs(strangers(50), 251).suspect).toBe(false);
    expect(suspectUs(strangers(49), 100).suspect).toBe(false);
  });

  it('suspects us in a small installation when nearly everyone fails', () => {
    expect(suspectUs(strangers(5), 5).suspect).toBe(true);
    expect(suspectUs(strangers(4), 4).suspect).toBe(false);
    expect(suspectUs(strangers(5), 6).suspect).toBe(false);
  });

  it('does not suspect us when one customer or one data centre is down', () => {
    const oneSite = strangers(500).map((endpoint, i) => ({ ...endpoint, domain: `e${i}.shop.example` }));
    expect(suspectUs(oneSite, 600)).toEqual({ suspect: false, independent: 1 });
    const oneRack = strangers(200).map((endpoint, i) => ({ ...endpoint, address: `198.51.100.${i}` }));
    expect(suspectUs(oneRack, 250)).toEqual({ suspect: false, independent: 1 });
  });

  it('counts endpoints that never resolved by their site', () => {
    const noDns = strangers(60).map((endpoint) => ({ ...endpoint, address: '' }));
    expect(suspectUs(noDns, 100)).toEqual({ suspect: true, independent: 60 });
  });

  it('says nothing when nobody is active', () => {
    expect(suspectUs([], 0)).toEqual({ suspect: false, independent: 0 });
  });
});

describe('siteOf and networkOf', () => {
  it('find the registered name and the neighbourhood', () => {
    expect(siteOf('Hooks.Eu.Shop.example.')).toBe('shop.example');
    expect(siteOf('a.b.shop.co.uk')).toBe('shop.co.uk');
    expect(siteOf('localhost')).toBe('localhost');
    expect(siteOf('192.0.2.8')).toBe('192.0.2');
    expect(networkOf('2001:db8:1:2::5')).toBe('2001:db8:1');
    expect(networkOf('2001:0db8:0001::')).toBe('2001:db8:1');
    expect(networkOf('::1')).toBe('0:0:0');
  });
});
