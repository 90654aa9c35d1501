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
import { RULE_NAMES } from '../../src/domain/rules.ts';

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
      if (decision.outcome !== 'retrying') throw new Error(`${name} is tried again`);
      expect(decision).toMatchObject({ rule: 'ours', step: 0, burned: 0 });
      const [least, most] = info.pace === 'minute' ? [60_000, 90_000] : [5_000, 7_500];
      expect(decision.dueMs).toBeGreaterThanOrEqual(NOW + least);
      expect(decision.dueMs).toBeLessThanOrEqual(NOW + most);
    }
  });

  it('does not let a fault of ours use up a list', () => {
    const policy = { ...DEFAULT_POLICY, kind: 'schedule' as const, stepsMs: [1_000, 2_000], maxAttempts: 3 };
    const decision = decide(facts({ class: 'stalled', step: 2, burned: 2, n: 3, policy }));
    if (decision.outcome !== 'retrying') throw new Error('it is tried again');
    expect(decision).toMatchObject({ outcome: 'retrying', rule: 'ours', step: 2, burned: 2 });
    expect(decision.dueMs).toBeLessThanOrEqual(NOW + 2_200); // the minute is never longer than the longest step
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
    for (const name of ['http_5xx', 'http_429', 'deadline', 'local'] as const) {
      expect(decide(facts({ step: 3, burned: 3, resumeAtMs, class: name }))).toEqual({
        outcome: 'retrying',
        rule: 'manual',
        ownDueMs: resumeAtMs,
        step: 3,
        burned: 3,
        dueMs: resumeAtMs,
      });
    }
    // Also when the scheduled attempts are all but used up: the last one is still to come.
    const last = { step: 29, burned: 29, resumeAtMs };
    expect(decide(facts(last))).toMatchObject({ outcome: 'retrying', burned: 29 });
    // A receiver that asks for more than the schedule gives gets it.
    expect(decide(facts({ resumeAtMs: NOW + 60_000, retryAfterSeconds: 3_600 }))).toMatchObject({
      rule: 'retry_after',
      ownDueMs: NOW + 60_000,
      step: 0,
    });
  });

  it('names the rule that decided, one of the closed list, for every outcome', () => {
    fc.assert(
      fc.property(anyFacts, (f) => {
        const decision = decide(f);
        expect(RULE_NAMES).toContain(decision.rule);
        if (decision.outcome === 'dead') expect(decision.rule).toBe(decision.reason);
        if (decision.outcome === 'retrying' && decision.rule !== 'deadline')
          expect(decision.ownDueMs).toBeLessThanOrEqual(decision.dueMs);
      }),
    );
    const rule = (change: Partial<AttemptFacts>) => decide(facts(change)).rule;
    expect(rule({ class: 'ok' })).toBe('delivered');
    expect(rule({})).toBe('schedule');
    expect(rule({ class: 'http_502' })).toBe('slower');
    expect(rule({ class: 'deadline' })).toBe('minute');
    expect(rule({ class: 'local' })).toBe('ours');
    expect(rule({ retryAfterSeconds: 600 })).toBe('retry_after');
    expect(rule({ retryAfterSeconds: 1 })).toBe('schedule');
    expect(rule({ class: 'http_429', retryAfterSeconds: 1 })).toBe('schedule');
    expect(rule({ deadlineMs: NOW + 1_000 })).toBe('deadline');
  });

  it('waits as Retry-After asks whatever failed, at most a day, and up to a tenth or a minute longer', () => {
    const any = fc.record({
      seconds: fc.integer({ min: 0, max: 10 ** 12 }),
      class: fc.constantFrom('http_3xx', 'http_4xx', 'http_429', 'http_503', 'http_5xx', 'http_408' as const),
      n: fc.integer({ min: 1, max: 100 }),
    });
    fc.assert(
      fc.property(any, ({ seconds, n, class: name }) => {
        const decision = decide(facts({ class: name, n, retryAfterSeconds: seconds }));
        const asked = Math.min(seconds, 86_400) * 1_000;
        if (decision.outcome !== 'retrying') throw new Error('it is tried again');
        const latest = Math.max(decision.ownDueMs!, NOW + asked + Math.min(asked / 10, 60_000) + 1);
        expect(decision.dueMs).toBeGreaterThanOrEqual(Math.max(decision.ownDueMs!, NOW + asked));
        expect(decision.dueMs).toBeLessThanOrEqual(latest);
      }),
    );
  });

  it('ends a delivery at its deadline when the next attempt would come later: no last try at the deadline', () => {
    const deadlineMs = NOW + 60_000;
    expect(decide(facts({ retryAfterSeconds: 60, deadlineMs }))).toMatchObject({
      outcome: 'retrying',
      rule: 'deadline',
      dueMs: deadlineMs,
    });
    expect(decide(facts({ step: 5, deadlineMs }))).toMatchObject({ rule: 'deadline', dueMs: deadlineMs });
  });

  it('never waits longer than a timer of Temporal may: the deadline is 30 days at most', () => {
    fc.assert(
      fc.property(anyFacts, (f) => {
        const decision = decide(f);
        if (decision.outcome === 'retrying')
          expect(decision.dueMs - f.nowMs).toBeLessThanOrEqual(30 * 24 * HOUR);
      }),
    );
  });

  it('spreads 1,000 deliveries that an endpoint lost in one instant over the whole wait', () => {
    for (const change of [
      {},
      { class: 'http_429' as const },
      { retryAfterSeconds: 300 },
      { class: 'local' as const },
    ]) {
      const due = Array.from({ length: 1_000 }, (_, i) => {
        const decision = decide(facts({ ...change, delivery: `dlv_01M8PV1KCZE5A85DF557809${i}` }));
        return decision.outcome === 'retrying' ? decision.dueMs : 0;
      });
      const [first, last] = [Math.min(...due), Math.max(...due)];
      expect(last - first).toBeGreaterThan('class' in change && change.class === 'local' ? 2_400 : 13_000);
      const tenths = new Array(10).fill(0);
      for (const ms of due) tenths[Math.min(9, Math.floor(((ms - first) / (last - first)) * 10))]++;
      expect(Math.max(...tenths)).toBeLessThan(160);
    }
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

  it('refuses a list that its unspoken deadline would cut off, naming both, and leaves a spoken one to its author', () => {
    const days = (n: number) => ({ schedule: Array.from({ length: n }, () => '1d') });
    expect(normalizeRetryPolicy({ schedule: ['1d', '1d', '23h'] })).toMatchObject({ ok: true });
    for (const n of [3, 6])
      expect(normalizeRetryPolicy(days(n))).toEqual({
        ok: false,
        pointer: '/schedule',
        detail:
          `its waits add up to ${n} d, but a delivery is given up after 3 d unless the policy says otherwise: ` +
          `give a deadline of more than ${n} d, or shorten the schedule`,
      });
    expect(normalizeRetryPolicy(days(40))).toMatchObject({
      ok: false,
      detail: expect.stringContaining('no deadline is longer than 30 d, or shorten the schedule'),
    });
    expect(normalizeRetryPolicy({ ...days(6), deadline: '7d' })).toMatchObject({ ok: true });
    expect(normalizeRetryPolicy({ ...days(6), deadline: '2d' })).toMatchObject({ ok: true });
    expect(normalizeRetryPolicy({ ...days(6), max_attempts: 3 })).toMatchObject({ ok: true }); // two waits of it
    expect(normalizeRetryPolicy({ base: '1d', cap: '1d', max_attempts: 30 })).toMatchObject({ ok: true }); // a ceiling
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
