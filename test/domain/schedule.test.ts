import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PACES } from '../../src/domain/classes.ts';
import {
  DEFAULT_POLICY,
  normalizeRetryPolicy,
  type RetryPolicy,
  STANDARD_WEBHOOKS_POLICY,
} from '../../src/domain/retry-policy.ts';
import { hashUnit, waitBounds, waitMs } from '../../src/domain/schedule.ts';

const HOUR = 3_600_000;

const duration = (min: number, max: number) => fc.integer({ min, max }).map((ms) => `${ms}ms`);
const anyPolicy: fc.Arbitrary<RetryPolicy> = fc
  .oneof(
    fc.constantFrom<object>({ preset: 'default' }, { preset: 'standard-webhooks' }),
    fc.record({
      schedule: fc.array(duration(10, 86_400_000), { minLength: 1, maxLength: 20 }),
      deadline: fc.constant('30d'),
    }),
    fc.record({
      base: duration(10, 60_000),
      cap: duration(60_000, 86_400_000),
      factor: fc.double({ min: 1, max: 10, noNaN: true }),
      jitter: fc.constantFrom('equal', 'none'),
    }),
  )
  .map((input) => {
    const checked = normalizeRetryPolicy(input);
    if (!checked.ok) throw new Error(checked.detail);
    return checked.policy;
  });
const step = fc.integer({ min: 0, max: 2_000 });
const pace = fc.constantFrom(...PACES);
const longest = (policy: RetryPolicy) =>
  policy.kind === 'schedule' ? Math.max(...policy.stepsMs) * 1.1 : policy.capMs;

describe('every wait', () => {
  it('lies between its bounds, which lie between zero and the longest wait of the policy', () => {
    fc.assert(
      fc.property(anyPolicy, step, pace, fc.string(), (policy, at, how, key) => {
        const bounds = waitBounds(policy, at, how);
        const wait = waitMs(policy, at, key, how);
        if (bounds === null || wait === null) {
          expect([bounds, wait]).toEqual([null, null]);
          return;
        }
        expect(bounds.minMs).toBeGreaterThan(0);
        expect(wait).toBeGreaterThanOrEqual(bounds.minMs);
        expect(wait).toBeLessThanOrEqual(bounds.maxMs);
        expect(bounds.maxMs).toBeLessThanOrEqual(longest(policy) * (1 + 1e-9));
      }),
    );
  });

  it('is the same whoever computes it, and another for another attempt or delivery', () => {
    fc.assert(
      fc.property(anyPolicy, step, fc.string(), (policy, at, key) => {
        expect(waitMs(policy, at, key)).toBe(waitMs(policy, at, key));
      }),
    );
    expect(waitMs(DEFAULT_POLICY, 0, 'dlv_a#1')).not.toBe(waitMs(DEFAULT_POLICY, 0, 'dlv_a#2'));
    expect(waitMs(DEFAULT_POLICY, 0, 'dlv_a#1')).not.toBe(waitMs(DEFAULT_POLICY, 0, 'dlv_b#1'));
  });

  it('grows with every step up to the cap and stays there, when the policy is exponential', () => {
    fc.assert(
      fc.property(anyPolicy, step, pace, (policy, at, how) => {
        if (policy.kind !== 'exponential') return;
        const [now, next] = [waitBounds(policy, at, how)!, waitBounds(policy, at + 1, how)!];
        expect(next.minMs).toBeGreaterThanOrEqual(now.minMs);
        expect(next.maxMs).toBeGreaterThanOrEqual(now.maxMs);
      }),
    );
  });

  it('is never shorter for `slower` or `minute` than for `normal`', () => {
    fc.assert(
      fc.property(anyPolicy, step, fc.string(), (policy, at, key) => {
        const normal = waitMs(policy, at, key);
        if (normal === null) return;
        for (const how of ['slower', 'minute'] as const)
          expect(waitMs(policy, at, key, how)).toBeGreaterThanOrEqual(normal * (1 - 1e-9));
      }),
    );
  });
});

describe('the default schedule', () => {
  it('doubles from 30 s to 6 h, between half and the whole of it', () => {
    for (let at = 0; at < 40; at++) {
      const full = Math.min(6 * HOUR, 30_000 * 2 ** at);
      expect(waitBounds(DEFAULT_POLICY, at)).toEqual({ minMs: full / 2, maxMs: full });
    }
  });

  it('grows three times per step after 429 and from gateways, from a minute on', () => {
    const patient = { ...DEFAULT_POLICY, jitter: 'none' } as typeof DEFAULT_POLICY;
    expect(waitMs(patient, 2, 'k', 'slower')).toBe(30_000 * 9);
    expect(waitBounds(DEFAULT_POLICY, 0, 'slower')).toEqual({ minMs: 60_000, maxMs: 90_000 });
    expect(waitBounds(DEFAULT_POLICY, 0, 'minute')).toEqual({ minMs: 60_000, maxMs: 90_000 });
    expect(waitBounds(DEFAULT_POLICY, 4, 'minute')).toEqual(waitBounds(DEFAULT_POLICY, 4));
  });

  it('makes 21 to 27 retries fit into 72 h', () => {
    for (let delivery = 0; delivery < 200; delivery++) {
      let at = 0;
      let retries = 0;
      for (; ; retries++) {
        at += waitMs(DEFAULT_POLICY, retries, `d${delivery}#${retries + 1}`)!;
        if (at >= 72 * HOUR) break;
      }
      expect(retries).toBeGreaterThanOrEqual(20);
      expect(retries).toBeLessThanOrEqual(28);
    }
  });
});

describe('listed schedules', () => {
  it('follow the list with up to 10 % more, then end', () => {
    for (const [at, listed] of (
      STANDARD_WEBHOOKS_POLICY as unknown as { stepsMs: number[] }
    ).stepsMs.entries()) {
      const wait = waitMs(STANDARD_WEBHOOKS_POLICY, at, 'k')!;
      expect(wait).toBeGreaterThanOrEqual(listed);
      expect(wait).toBeLessThanOrEqual(listed * 1.1);
    }
    expect(waitMs(STANDARD_WEBHOOKS_POLICY, 9, 'k')).toBeNull();
  });

  it('of milliseconds stay milliseconds, also after 429', () => {
    const checked = normalizeRetryPolicy({ schedule: ['10ms', '20ms'] });
    if (!checked.ok) throw new Error(checked.detail);
    expect(waitBounds(checked.policy, 0, 'slower')!.maxMs).toBeLessThanOrEqual(22);
  });
});

describe('hashUnit', () => {
  it('spreads neighbouring attempts evenly over [0, 1)', () => {
    const tenths = new Array(10).fill(0);
    for (let i = 0; i < 10_000; i++)
      tenths[Math.floor(hashUnit(`dlv_01M8PV1KCZE5A85DF557809EE5#${i}`) * 10)]++;
    for (const count of tenths) expect(Math.abs(count - 1_000)).toBeLessThan(150);
  });

  it('stays in [0, 1) whatever the text', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(hashUnit(text)).toBeGreaterThanOrEqual(0);
        expect(hashUnit(text)).toBeLessThan(1);
      }),
    );
  });
});
