import { describe, expect, it } from 'vitest';
import { Subject, T0 } from '../support/health.ts';

const at = (second: number) => T0 + second * 1000;

function recovering(change: ConstructorParameters<typeof Subject>[0] = {}): {
  subject: Subject;
  from: number;
} {
  const subject = new Subject({ sendRate: 50, ...change });
  subject.trip(0);
  subject.probe({ ok: 1 });
  subject.probe({ ok: 1 });
  return { subject, from: (subject.seen.nowMs - T0) / 1000 };
}
/** A second per step, all successes, the endpoint sent to at its rate. */
function grow(subject: Subject, from: number, seconds: number, change = {}): number[] {
  const rates: number[] = [];
  for (let i = 1; i <= seconds; i++) {
    const sendRate = subject.last?.gate.rate ?? 0;
    rates.push(subject.step(from + i, [{ ok: Math.ceil(sendRate) }], { sendRate, ...change }).gate.rate!);
  }
  return rates;
}

describe('recovery', () => {
  it('doubles every 20 s up to 1.2 times the rate before, then grows by 1 % per second', () => {
    const { subject, from } = recovering();
    const rates = grow(subject, from, 120);
    expect(rates[19]).toBeCloseTo(10, 1);
    expect(rates[39]).toBeCloseTo(20, 1);
    expect(rates[71]).toBeCloseTo(60, 0);
    expect(rates[90]! / rates[89]!).toBeCloseTo(1.01, 5);
  });

  it('starts from what comes in now, where the average before the outage says less', () => {
    const fresh = recovering({ sendRate: 10, arrivalRate: 50 });
    expect(fresh.subject.last?.gate.rate).toBe(5);
    const rates = grow(fresh.subject, fresh.from, 80);
    expect(rates[39]).toBeCloseTo(20, 1);
    expect(rates[71]).toBeCloseTo(60, 0);
    expect(recovering({ sendRate: 50, arrivalRate: 1 }).subject.last?.gate.rate).toBe(5);
  });

  it('starts at 0.2/s and reaches 1/s within a minute for an endpoint that is seldom sent to', () => {
    const { subject, from } = recovering({ sendRate: 0.01 });
    expect(subject.last?.gate.rate).toBe(0.2);
    expect(grow(subject, from, 50).at(-1)).toBeGreaterThanOrEqual(1);
  });

  it('does not grow while nothing waits, the endpoint is paused, or the rate is not used', () => {
    const idle = recovering();
    expect(grow(idle.subject, idle.from, 60, { held: 0 }).at(-1)).toBe(5);
    const paused = recovering();
    expect(grow(paused.subject, paused.from, 60, { operator: 'paused' }).at(-1)).toBe(5);
    const unused = recovering();
    expect(grow(unused.subject, unused.from, 1_000, { sendRate: 8 }).at(-1)).toBeLessThanOrEqual(90);
  });

  it('falls to 0.7 of what was taken at the first failures, once per flight, and is back at it after 60 s', () => {
    const { subject, from } = recovering();
    grow(subject, from, 80);
    const before = subject.last!.gate.rate!;
    const now = from + 81;
    const first = subject.step(now, [{ ok: 50, fail: 14 }]).gate.rate!;
    const congested = subject.state!.pace!.congested;
    expect(congested).toBeGreaterThan(0.9 * before);
    expect(congested).toBeLessThan(1.02 * before);
    expect(first).toBeCloseTo(0.7 * congested, 6);
    // Failures of requests that were under way then are the same congestion.
    const again = subject.step(now + 0.5, [{ ok: 10, fail: 6, startedMs: at(now) - 50 }]).gate.rate!;
    expect(again).toBeGreaterThanOrEqual(first);
    const rates = grow(subject, now + 0.5, 60);
    expect(rates[59]).toBeCloseTo(congested, 1);
    expect(rates[30]).toBeGreaterThan(0.95 * congested);
  });

  it('takes no more than 5 % of failures for congestion', () => {
    const { subject, from } = recovering();
    grow(subject, from, 80);
    const before = subject.last!.gate.rate!;
    expect(subject.step(from + 81, [{ ok: 60, fail: 2 }]).gate.rate).toBeGreaterThan(before);
  });
});

describe('429', () => {
  it('pauses for 1 to 4 s without Retry-After and lowers the rate to 0.8 of what was sent', () => {
    const subject = new Subject({ sendRate: 100, lastSuccessAtMs: T0 - 10, oks: 1_000 });
    const { gate } = subject.step(0, [{ ok: 5, throttled: 1 }]);
    expect(gate).toMatchObject({ mode: 'pump', resetTokens: true, keepPumpUntilMs: at(30) });
    expect(gate.rate).toBeGreaterThanOrEqual(79);
    expect(gate.rate).toBeLessThanOrEqual(81);
    expect(gate.pauseUntilMs).toBeGreaterThanOrEqual(at(1));
    expect(gate.pauseUntilMs).toBeLessThanOrEqual(at(4));
  });

  it('pauses as long as Retry-After asks, with 503 too', () => {
    for (const kind of ['throttled', 'fail'] as const) {
      const subject = new Subject({ sendRate: 100, lastSuccessAtMs: T0 - 10, oks: 1_000 });
      const { gate } = subject.step(0, [{ ok: 5, [kind]: 1, pauseUntilMs: at(300) }]);
      expect(gate).toMatchObject({ mode: 'pump', pauseUntilMs: at(300), liveSinceMs: at(300) });
      expect(gate.rate).toBeLessThanOrEqual(81);
    }
  });

  it('lowers the rate once per flight', () => {
    const subject = new Subject({ sendRate: 100, lastSuccessAtMs: T0 - 10, oks: 1_000 });
    const first = subject.step(0, [{ throttled: 1, ok: 1 }]).gate.rate!;
    expect(subject.step(0.2, [{ throttled: 4, startedMs: at(0) - 10 }]).gate.rate).toBe(first);
    subject.step(8, [{ ok: 1, okStartedMs: at(7) }]);
    expect(subject.step(9, [{ throttled: 1, startedMs: at(8) }]).gate.rate).toBeLessThan(first);
  });

  it('waits longer, at the same rate, when refused again before anything was taken', () => {
    const subject = new Subject({ sendRate: 100, lastSuccessAtMs: T0 - 10, oks: 1_000 });
    const rate = subject.step(0, [{ throttled: 1, ok: 1 }]).gate.rate!;
    let from = 0;
    const pauses: number[] = [];
    for (let i = 0; i < 8; i++) {
      const pause = (subject.last!.gate.pauseUntilMs! - T0) / 1000 - from;
      pauses.push(pause);
      from += pause + 0.1;
      expect(
        subject.step(from, [{ throttled: 1, startedMs: at(from) - 50 }]).gate.rate,
      ).toBeGreaterThanOrEqual(rate);
    }
    expect(pauses.at(-1)).toBeGreaterThan(8);
    expect(pauses.at(-1)).toBeLessThan(16);
    expect(subject.state?.health).toBe('closed');
  });

  it('is forgotten some seconds after the pump has emptied', () => {
    const subject = new Subject({ sendRate: 100, lastSuccessAtMs: T0 - 10, oks: 1_000 });
    subject.step(0, [{ throttled: 1, ok: 1 }]);
    const step = subject.step(40, [{ edit: 'drained' }], { mode: 'shared', held: 0 });
    expect(step.gate.mode).toBe('shared');
    expect(step.gate.rate).not.toBeNull();
    expect(subject.step(50).gate.rate).toBeNull();
  });

  it('raises an edge when the pause is longer than an hour, once', () => {
    const subject = new Subject();
    subject.step(0, [{ throttled: 1, pauseUntilMs: at(7_200) }]);
    subject.step(10, [{ throttled: 1, pauseUntilMs: at(8_000) }]);
    expect(subject.edges).toEqual(['paused_long']);
    expect(subject.step(20, [{ edit: 'resume' }]).gate.pauseUntilMs).toBeNull();
  });
});

describe('a slow endpoint', () => {
  it('goes to the pump without a rate, and stays for 30 s after it was slow last', () => {
    const subject = new Subject({ lastSuccessAtMs: T0, oks: 100, held: 0 });
    const { gate } = subject.step(0, [{ ok: 28, slow: 2 }]);
    expect(gate).toMatchObject({ mode: 'pump', rate: null, keepPumpUntilMs: at(30) });
    expect(subject.step(59.9).gate.keepPumpUntilMs).toBe(at(89.9));
    expect(subject.step(95).gate.keepPumpUntilMs).toBeNull();
  });

  it('is one whose p95 is above 2 s over at least 20 requests', () => {
    const few = new Subject({ held: 0 });
    expect(few.step(0, [{ ok: 19, slow: 19 }]).gate.mode).toBe('shared');
    const seldom = new Subject({ held: 0 });
    expect(seldom.step(0, [{ ok: 100, slow: 5 }]).gate.mode).toBe('shared');
  });
});

describe('a pause by an operator', () => {
  it('lets a large backlog out at a growing rate, a small one at once', () => {
    const large = new Subject({ sendRate: 50, held: 5_000 });
    large.step(0, [{ edit: 'pause' }], { operator: 'paused' });
    expect(large.last?.gate.mode).toBe('pump');
    const step = large.step(600, [{ edit: 'resume' }], { operator: 'active', sendRate: 0 });
    expect(step).toMatchObject({ state: { health: 'recovering' }, gate: { rate: 5, liveSinceMs: at(600) } });
    const small = new Subject({ sendRate: 50, held: 50 });
    small.step(0, [{ edit: 'pause' }], { operator: 'paused' });
    expect(small.step(600, [{ edit: 'resume' }], { operator: 'active' }).gate.rate).toBeNull();
  });
});
