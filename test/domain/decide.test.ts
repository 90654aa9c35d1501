import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OUTCOME_CLASSES, type OutcomeClass } from '../../src/domain/classes.ts';
import { type AttemptFacts, decide } from '../../src/domain/decide.ts';
import {
  DEFAULT_POLICY,
  normalizeRetryPolicy,
  parseDuration,
  STANDARD_WEBHOOKS_POLICY,
} from '../../src/domain/retry-policy.ts';
import { hashUnit, waitMs } from '../../src/domain/schedule.ts';

const NOW = 1_764_500_000_000;
const HOUR = 3_600_000;
const facts = (change: Partial<AttemptFacts> = {}): AttemptFacts => ({
  delivery: 'dlv_01M8PV1KCZE5A85DF557809EE5',
  n: 1,
  step: 0,
  burned: 0,
  class: 'http_5xx',
  retryAfterSeconds: null,
  nowMs: NOW,
  deadlineMs: NOW + 72 * HOUR,
  resumeAtMs: null,
  policy: DEFAULT_POLICY,
  ...change,
});
const anyFacts = fc.record({
  delivery: fc.string(),
  n: fc.integer({ min: 1, max: 1_000 }),
  step: fc.integer({ min: 0, max: 1_000 }),
  burned: fc.integer({ min: 0, max: 1_000 }),
  class: fc.constantFrom(...(Object.keys(OUTCOME_CLASSES) as OutcomeClass[])),
  retryAfterSeconds: fc.option(fc.integer({ min: 0, max: 86_400 })),
  nowMs: fc.constant(NOW),
  deadlineMs: fc.integer({ min: NOW, max: NOW + 30 * 24 * HOUR }),
  resumeAtMs: fc.option(fc.integer({ min: NOW - HOUR, max: NOW + HOUR })),
  policy: fc.constantFrom(DEFAULT_POLICY, STANDARD_WEBHOOKS_POLICY),
});

describe('decide', () => {
  it('never waits past the deadline, never into the past, never less than Retry-After asks before the deadline', () => {
    fc.assert(
      fc.property(anyFacts, (f) => {
        const decision = decide(f);
        if (decision.outcome !== 'retrying') return;
        expect(decision.dueMs).toBeLessThanOrEqual(f.deadlineMs);
        expect(decision.dueMs).toBeGreaterThanOrEqual(f.nowMs);
        if (f.retryAfterSeconds !== null && OUTCOME_CLASSES[f.class].burnsAttempt) {
          expect(decision.dueMs).toBeGreaterThanOrEqual(
            Math.min(f.deadlineMs, f.nowMs + f.retryAfterSeconds * 1_000),
          );
        }
      }),
    );
  });

  it('is the same whenever it is asked again', () => {
    fc.assert(
      fc.property(anyFacts, (f) => {
        expect(decide(f)).toEqual(decide({ ...f }));
      }),
    );
  });

  it('burns nothing for faults of ours, and tries soon', () => {
    for (const [name, info] of Object.entries(OUTCOME_CLASSES)) {
      if (info.burnsAttempt) continue;
      const decision = decide(facts({ class: name as OutcomeClass }));
      expect(decision).toMatchObject({ outcome: 'retrying', step: 0, burned: 0, dueMs: NOW + 5_000 });
    }
  });

  it('ends a delivery that used its attempts up, is gone, or must not be retried', () => {
    expect(decide(facts({ burned: 29, step: 29 }))).toMatchObject({
      outcome: 'dead',
      reason: 'max_attempts',
    });
    expect(decide(facts({ burned: 28, step: 28 }))).toMatchObject({ outcome: 'retrying' });
    expect(decide(facts({ class: 'http_410' }))).toMatchObject({ outcome: 'dead', reason: 'gone' });
    // A deployment that lost its EGRESS_ALLOW refuses what it accepted: that must not end anything for good.
    expect(decide(facts({ class: 'invalid_url' }))).toMatchObject({ outcome: 'retrying' });
    const strict = { ...DEFAULT_POLICY, retry4xx: false };
    expect(decide(facts({ class: 'http_4xx', policy: strict }))).toMatchObject({
      outcome: 'dead',
      reason: 'not_retried',
    });
    expect(decide(facts({ class: 'http_429', policy: strict }))).toMatchObject({ outcome: 'retrying' });
  });

  it('leaves the schedule alone after a manual attempt', () => {
    const resumeAtMs = NOW + 5 * HOUR;
    expect(decide(facts({ step: 3, burned: 3, resumeAtMs }))).toEqual({
      outcome: 'retrying',
      step: 3,
      burned: 3,
      dueMs: resumeAtMs,
    });
    // Also when the scheduled attempts are all but used up: the last one is still to come.
    const last = { step: 29, burned: 29, resumeAtMs };
    expect(decide(facts(last))).toMatchObject({ outcome: 'retrying', burned: 29 });
  });
});

describe('the default schedule', () => {
  it('doubles from 30 s to 6 h, between half and the whole of it', () => {
    for (let step = 0; step < 40; step++) {
      const full = Math.min(6 * HOUR, 30_000 * 2 ** step);
      for (const key of ['a', 'b', 'c']) {
        const wait = waitMs(DEFAULT_POLICY, step, key, false)!;
        expect(wait).toBeGreaterThanOrEqual(full / 2);
        expect(wait).toBeLessThanOrEqual(full);
      }
    }
  });

  it('grows three times faster after 429 without Retry-After', () => {
    const patient = { ...DEFAULT_POLICY, jitter: 'none' } as typeof DEFAULT_POLICY;
    expect(waitMs(patient, 2, 'k', true)).toBe(30_000 * 9);
  });

  it('makes 15 to 40 attempts fit into 72 h', () => {
    let at = 0;
    let attempts = 1;
    for (let step = 0; at < 72 * HOUR && attempts < 100; step++) {
      at += waitMs(DEFAULT_POLICY, step, `d#${step}`, false)!;
      attempts++;
    }
    expect(attempts).toBeGreaterThan(15);
    expect(attempts).toBeLessThan(40);
  });
});

describe('listed schedules', () => {
  it('follow the list with up to 10 % more, then end', () => {
    for (const [step, listed] of (
      STANDARD_WEBHOOKS_POLICY as unknown as { stepsMs: number[] }
    ).stepsMs.entries()) {
      const wait = waitMs(STANDARD_WEBHOOKS_POLICY, step, 'k', false)!;
      expect(wait).toBeGreaterThanOrEqual(listed);
      expect(wait).toBeLessThanOrEqual(listed * 1.1);
    }
    expect(waitMs(STANDARD_WEBHOOKS_POLICY, 9, 'k', false)).toBeNull();
  });
});

describe('hashUnit', () => {
  it('spreads neighbouring attempts evenly over [0, 1)', () => {
    const tenths = new Array(10).fill(0);
    for (let i = 0; i < 10_000; i++)
      tenths[Math.floor(hashUnit(`dlv_01M8PV1KCZE5A85DF557809EE5#${i}`) * 10)]++;
    for (const count of tenths) expect(Math.abs(count - 1_000)).toBeLessThan(150);
  });
});

describe('normalizeRetryPolicy', () => {
  it('knows presets, lists and exponential policies', () => {
    expect(normalizeRetryPolicy(undefined)).toMatchObject({ ok: true, policy: DEFAULT_POLICY });
    expect(normalizeRetryPolicy({ preset: 'standard-webhooks' })).toMatchObject({
      ok: true,
      deadlineMs: 80 * HOUR,
    });
    expect(normalizeRetryPolicy({ schedule: ['10ms', '1.5s'], deadline: '1s' })).toMatchObject({
      ok: true,
      deadlineMs: 1_000,
      policy: { kind: 'schedule', stepsMs: [10, 1_500], maxAttempts: 3 },
    });
    expect(
      normalizeRetryPolicy({ base: '1s', cap: '1m', factor: 3, jitter: 'none', max_attempts: 5 }),
    ).toMatchObject({
      ok: true,
      policy: { baseMs: 1_000, capMs: 60_000, factor: 3, jitter: 'none', maxAttempts: 5 },
    });
  });

  it('names the field that is wrong', () => {
    const bad: [unknown, string][] = [
      [7, ''],
      [[], ''],
      [{ presett: 'default' }, '/presett'],
      [{ preset: 'fast' }, '/preset'],
      [{ preset: 'default', schedule: ['1s'] }, ''],
      [{ schedule: [] }, '/schedule'],
      [{ schedule: ['1s', '5ms'] }, '/schedule/1'],
      [{ schedule: ['1s', 5] }, '/schedule/1'],
      [{ base: 'soon' }, '/base'],
      [{ base: '10s', cap: '1s' }, '/cap'],
      [{ factor: 0.5 }, '/factor'],
      [{ jitter: 'full' }, '/jitter'],
      [{ deadline: '31d' }, '/deadline'],
      [{ deadline: '500ms' }, '/deadline'],
      [{ max_attempts: 1.5 }, '/max_attempts'],
      [{ retry_4xx: 'no' }, '/retry_4xx'],
    ];
    for (const [input, pointer] of bad)
      expect(normalizeRetryPolicy(input)).toMatchObject({ ok: false, pointer });
  });

  it('reads durations and nothing else', () => {
    expect(['250ms', '5s', '1.5h', '2d', '0s'].map(parseDuration)).toEqual([
      250, 5_000, 5_400_000, 172_800_000, 0,
    ]);
    expect(['', '5', 's', '-1s', '1e3s', ' 1s', '1 s', '1w', '1.2345s', null, 5].map(parseDuration)).toEqual(
      new Array(11).fill(null),
    );
  });
});
