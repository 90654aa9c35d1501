import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decide } from '../../src/domain/decide.ts';
import type { EndpointStanding } from '../../src/domain/endpoint-wait.ts';
import { type OutlookFacts, outlook, retrySchedule } from '../../src/domain/outlook.ts';
import {
  DEFAULT_POLICY,
  normalizeRetryPolicy,
  type RetryPolicy,
  STANDARD_WEBHOOKS_POLICY,
} from '../../src/domain/retry-policy.ts';

const HOUR = 3_600_000;
const NOW = Date.parse('2026-12-03T11:30:00Z');

const policyOf = (input: object): RetryPolicy => {
  const checked = normalizeRetryPolicy(input);
  if (!checked.ok) throw new Error(checked.detail);
  return checked.policy;
};

/** Lives a delivery through: every attempt fails at once. Answers the times after the first attempt. */
function live(policy: RetryPolicy, delivery: string): number[] {
  const times = [0];
  for (let [at, step, burned] = [0, 0, 0]; ; ) {
    const decision = decide({
      delivery,
      n: times.length,
      step,
      burned,
      class: 'http_5xx',
      retryAfterSeconds: null,
      nowMs: at,
      deadlineMs: policy.deadlineMs,
      resumeAtMs: null,
      policy,
    });
    if (decision.outcome !== 'retrying' || decision.rule === 'deadline') return times;
    ({ step, burned } = decision);
    at = decision.dueMs;
    times.push(at);
  }
}

describe('the schedule of an endpoint', () => {
  it.each([
    [
      { preset: 'default' },
      '21 to 30 attempts within 3 d: the second 15 s to 30 s after the first, the longest wait up to 6 h.',
    ],
    [
      { preset: 'standard-webhooks' },
      '9 to 10 attempts within 3.3 d: the second 5 s to 5.5 s after the first, the longest wait up to 1.1 d.',
    ],
    [{ max_attempts: 1 }, 'One attempt and no more.'],
    [{ schedule: ['10ms'] }, '2 attempts within 3 d: the second 10 ms to 11 ms after the first.'],
    [
      { base: '1m', factor: 1, cap: '1m', jitter: 'none', deadline: '10m' },
      '10 attempts within 10 min: the second 1 min after the first, the longest wait up to 1 min.',
    ],
    [
      { schedule: ['1h', '1d', '1d'], deadline: '2h' },
      '2 attempts within 2 h: the second 1 h to 1.1 h after the first. 2 more would come after the deadline.',
    ],
    [{ schedule: ['1d'], deadline: '1h' }, 'One attempt and no more. 1 more would come after the deadline.'],
  ])('%j is said in a sentence', (input, sentence) => {
    expect(retrySchedule(policyOf(input)).sentence).toBe(sentence);
  });

  it('shows at most 50 attempts and counts all', () => {
    const long = retrySchedule(
      policyOf({ base: '10ms', factor: 1, cap: '10ms', jitter: 'none', max_attempts: 1_000 }),
    );
    expect(long.attempts).toHaveLength(50);
    expect(long.maxAttempts).toBe(1_000);
  });

  it('holds for every delivery that fails at once: each attempt comes in its window', () => {
    fc.assert(
      fc.property(
        fc.string(),
        fc.constantFrom(
          DEFAULT_POLICY,
          STANDARD_WEBHOOKS_POLICY,
          policyOf({ base: '2s', factor: 3, cap: '1h', max_attempts: 12 }),
        ),
        (delivery, policy) => {
          const shown = retrySchedule(policy);
          const times = live(policy, delivery);
          expect(times.length).toBeLessThanOrEqual(shown.maxAttempts);
          for (const [i, at] of times.entries()) {
            const { earliestMs, latestMs } = shown.attempts[i]!;
            // Each wait is rounded up to a millisecond.
            expect(at).toBeGreaterThanOrEqual(earliestMs);
            expect(at).toBeLessThanOrEqual(latestMs + i + 1);
          }
        },
      ),
    );
  });
});

describe('the outlook of a delivery', () => {
  const HEALTHY: EndpointStanding = {
    state: 'active',
    mode: 'shared',
    health: 'closed',
    probeAtMs: null,
    pauseUntilMs: null,
  };
  const facts = (change: Partial<OutlookFacts> = {}): OutlookFacts => ({
    state: 'retrying',
    n: 3,
    step: 3,
    burned: 3,
    dueMs: NOW + 34 * 60_000,
    deadlineMs: NOW + 2.5 * HOUR,
    resumeAtMs: null,
    cancelRequested: false,
    nowMs: NOW,
    timeoutMs: 15_000,
    policy: DEFAULT_POLICY,
    endpoint: HEALTHY,
    ...change,
  });

  it('says when it is tried next and when it gives up', () => {
    expect(outlook(facts())).toEqual({
      earliestMs: NOW + 34 * 60_000,
      latestMs: NOW + 34 * 60_000,
      sentence:
        'Attempt 4 Thursday 3 Dec 12:04:00 UTC; gives up Thursday 3 Dec 14:00:00 UTC, or after 27 more attempts.',
    });
    expect(outlook(facts({ state: 'ready', n: 0, burned: 0, dueMs: NOW })).sentence).toBe(
      'Attempt 1 is due now; gives up Thursday 3 Dec 14:00:00 UTC, or after 30 more attempts.',
    );
  });

  it('says between which times the attempt after the one under way would come', () => {
    const sending = facts({ state: 'sending' });
    expect(outlook(sending)).toEqual({
      earliestMs: NOW + 120_000,
      latestMs: NOW + 15_000 + 240_000,
      sentence:
        'Attempt 3 is under way; if it fails, attempt 4 between Thursday 3 Dec 11:32:00 UTC and Thursday 3 Dec 11:34:15 UTC; ' +
        'gives up Thursday 3 Dec 14:00:00 UTC, or after 26 more attempts.',
    });
    expect(outlook({ ...sending, resumeAtMs: NOW + HOUR })).toMatchObject({
      earliestMs: NOW + HOUR,
      latestMs: NOW + HOUR,
    });
    expect(outlook({ ...sending, burned: 29 })).toEqual({
      earliestMs: null,
      latestMs: null,
      sentence: 'Attempt 3 is under way; if it fails, it is dead: no attempts are left.',
    });
  });

  it('says that nothing is to be expected when the next attempt would come after the deadline, or it is cancelled', () => {
    expect(outlook(facts({ dueMs: NOW + 2.5 * HOUR }))).toEqual({
      earliestMs: null,
      latestMs: null,
      sentence: 'No further attempt by itself; gives up Thursday 3 Dec 14:00:00 UTC.',
    });
    expect(outlook(facts({ state: 'held' })).sentence).toMatch(/^Waits for its endpoint.*gives up/);
    expect(outlook(facts({ state: 'sending', cancelRequested: true })).earliestMs).toBeNull();
  });

  const END = '; gives up Thursday 3 Dec 14:00:00 UTC, or after 27 more attempts.';
  it.each<[Partial<EndpointStanding>, string]>([
    [{ state: 'paused', mode: 'pump' }, 'is paused until someone resumes it'],
    [{ pauseUntilMs: NOW + HOUR, mode: 'pump' }, 'asked for a pause until Thursday 3 Dec 12:30:00 UTC'],
    [
      { health: 'open', mode: 'pump', probeAtMs: NOW + 60_000 },
      'fails and is tried again Thursday 3 Dec 11:31:00 UTC with one delivery',
    ],
    [{ health: 'half_open', mode: 'pump' }, 'fails and is being tried with one delivery'],
    [
      { health: 'misconfigured', mode: 'pump', probeAtMs: NOW + HOUR },
      'refuses everything and is tried again Thursday 3 Dec 12:30:00 UTC with one delivery, or at once when its settings change',
    ],
    [{ health: 'recovering', mode: 'pump' }, 'is recovering and gets what waits at a growing rate'],
  ])('says what it waits for, and no time that won’t hold, while its endpoint is %j', (standing, which) => {
    const endpoint = { ...HEALTHY, ...standing };
    expect(outlook(facts({ state: 'held', endpoint }))).toEqual({
      earliestMs: null,
      latestMs: null,
      sentence: `Waits for its endpoint, which ${which}${END}`,
    });
    expect(outlook(facts({ endpoint }))).toEqual({
      earliestMs: NOW + 34 * 60_000,
      latestMs: null,
      sentence: `Attempt 4, Thursday 3 Dec 12:04:00 UTC at the earliest, waits for its endpoint, which ${which}${END}`,
    });
    expect(outlook(facts({ state: 'ready', dueMs: NOW, endpoint }))).toEqual({
      earliestMs: null,
      latestMs: null,
      sentence: `Attempt 4 waits for its endpoint, which ${which}${END}`,
    });
    expect(outlook(facts({ state: 'sending', endpoint }))).toMatchObject({
      latestMs: null,
      sentence: expect.stringMatching(
        /^Attempt 3 is under way; if it fails, attempt 4, .* waits for its endpoint/,
      ),
    });
  });

  it('keeps its time while its endpoint is merely full, and waits in turn when it is held', () => {
    const endpoint: EndpointStanding = { ...HEALTHY, mode: 'pump' };
    expect(outlook(facts({ endpoint }))).toEqual(outlook(facts()));
    expect(outlook(facts({ state: 'held', endpoint })).sentence).toBe(
      `Waits for its endpoint, which takes no more at a time and gets what waits in turn${END}`,
    );
  });

  it('says that it ends with its endpoint when that is disabled or deleted, and nothing of it for a test send', () => {
    const disabled: EndpointStanding = { ...HEALTHY, state: 'disabled' };
    expect(outlook(facts({ endpoint: disabled })).sentence).toBe(
      'Ends as cancelled in a moment: its endpoint is disabled.',
    );
    expect(outlook(facts({ state: 'sending', endpoint: { ...HEALTHY, state: 'deleted' } })).sentence).toBe(
      'Ends with the answer to the attempt under way, delivered if that is a 2xx: its endpoint was deleted.',
    );
    expect(outlook(facts({ endpoint: null }))).toEqual(outlook(facts()));
  });

  it('never promises an attempt from the deadline on', () => {
    const any = fc.record({
      state: fc.constantFrom('ready', 'sending', 'retrying', 'held' as const),
      step: fc.integer({ min: 0, max: 40 }),
      burned: fc.integer({ min: 0, max: 40 }),
      dueMs: fc.integer({ min: NOW - HOUR, max: NOW + 3 * HOUR }),
      resumeAtMs: fc.option(fc.integer({ min: NOW - HOUR, max: NOW + 3 * HOUR })),
      policy: fc.constantFrom(DEFAULT_POLICY, STANDARD_WEBHOOKS_POLICY),
      endpoint: fc.option(
        fc.record({
          state: fc.constantFrom('active', 'paused', 'disabled', 'deleted' as const),
          mode: fc.constantFrom('shared', 'pump' as const),
          health: fc.constantFrom('closed', 'open', 'half_open', 'recovering', 'misconfigured' as const),
          probeAtMs: fc.option(fc.integer({ min: NOW - HOUR, max: NOW + HOUR })),
          pauseUntilMs: fc.option(fc.integer({ min: NOW - HOUR, max: NOW + HOUR })),
        }),
      ),
    });
    fc.assert(
      fc.property(any, (change) => {
        const { earliestMs, latestMs, sentence } = outlook(facts(change));
        expect(sentence).toMatch(/^[A-Z].*\.$/);
        expect(sentence).not.toMatch(/NaN|undefined|-\d/);
        if (earliestMs === null || latestMs === null) return;
        expect(earliestMs).toBeLessThan(NOW + 2.5 * HOUR);
        expect(latestMs).toBeLessThanOrEqual(NOW + 2.5 * HOUR);
        expect(latestMs).toBeGreaterThanOrEqual(earliestMs);
      }),
    );
  });
});
