import { describe, expect, it } from 'vitest';
import { type HealthStep, parseHealthState } from '../../src/domain/health.ts';
import { Subject, T0 } from '../support/health.ts';

describe('tripping', () => {
  it('happens when at least 20 results in a minute half failed', () => {
    const subject = new Subject();
    for (let second = 0; second < 9; second++) subject.step(second, [{ fail: 1, ok: 1 }]);
    expect(subject.last?.state.health).toBe('closed');
    const step = subject.step(9, [{ fail: 1, ok: 1 }]);
    expect(step.state.health).toBe('open');
    expect(step.gate).toMatchObject({ mode: 'pump', rate: null });
    expect(subject.edges).toEqual(['failing', 'opened']);
  });

  it('does not happen when fewer than half failed, or the results are older than a minute', () => {
    const subject = new Subject();
    subject.step(0, [{ fail: 9, ok: 10 }]);
    subject.step(70, [{ fail: 9, ok: 10 }]);
    subject.step(140, [{ fail: 19, ok: 20 }]);
    expect(subject.last?.state.health).toBe('closed');
  });

  it('happens after five failures in a row over three deliveries, ten seconds after the last success', () => {
    const failures = [{ fail: 5, deliveries: ['a', 'b', 'c'] }];
    expect(new Subject({ lastSuccessAtMs: T0 - 11_000 }).step(0, failures).state.health).toBe('open');
    const soon = new Subject({ lastSuccessAtMs: T0 - 4_000 }).step(0, failures);
    expect(soon.state.health).toBe('closed');
    expect(soon.wakeAtMs).toBe(T0 + 6_000);
  });

  it('gives an endpoint that never succeeded ten seconds since its first failure', () => {
    const subject = new Subject({ lastSuccessAtMs: null });
    expect(subject.step(0, [{ fail: 5, deliveries: ['a', 'b', 'c'] }]).state.health).toBe('closed');
    expect(subject.step(10).state.health).toBe('open');
  });

  it('happens when the ten seconds pass without another result', () => {
    const subject = new Subject({ lastSuccessAtMs: T0 - 4_000 });
    subject.step(0, [{ fail: 5, deliveries: ['a', 'b', 'c'] }]);
    expect(subject.step(6).state.health).toBe('open');
  });

  it('does not happen by one delivery that fails again and again', () => {
    const subject = new Subject();
    for (let i = 0; i < 19; i++) subject.step(i * 600, [{ fail: 1, deliveries: ['a'] }]);
    expect(subject.last?.state.health).toBe('closed');
  });

  it('happens after twenty failures in a row, within a second of a success', () => {
    const subject = new Subject({ lastSuccessAtMs: T0 - 500, oks: 5_000, sendRate: 100 });
    expect(subject.step(0, [{ fail: 19, deliveries: ['a'] }]).state.health).toBe('closed');
    expect(subject.step(0.1, [{ fail: 1, deliveries: ['a'] }]).state.health).toBe('open');
  });

  it('judges an endpoint whose claims have stopped at 20 failures, whatever the facts said', () => {
    expect(new Subject({ failsInRow: 20 }).step(0).state.health).toBe('open');
  });

  it('compares the first failures of a busy endpoint with what it took in the last minute', () => {
    const subject = new Subject({ lastSuccessAtMs: T0 - 10, oks: 100_000, sendRate: 100 });
    expect(subject.step(0, [{ fail: 15, ok: 2 }]).state.health).toBe('closed');
    subject.step(1, [{ fail: 15, ok: 2 }]);
    expect(subject.last?.state.health).toBe('closed');
  });

  it('counts plain successes between steps by the counter alone', () => {
    const subject = new Subject({ lastSuccessAtMs: T0, oks: 1_000 });
    subject.step(0, [{ fail: 1, ok: 1 }]);
    for (let i = 1; i <= 30; i++)
      subject.step(i, [{ fail: 1, ok: 1 }], { oks: 1_000 + 10 * i, lastSuccessAtMs: T0 + i * 1000 });
    const { window } = subject.last!.state;
    expect(window.reduce((sum, bucket) => sum + bucket.ok, 0)).toBeCloseTo(300, 6);
    expect(window.reduce((sum, bucket) => sum + bucket.fail, 0)).toBe(31);
  });

  it('happens on 429 only when nothing else has come for a minute', () => {
    const subject = new Subject({ lastSuccessAtMs: T0 - 1_000, sendRate: 10 });
    for (let second = 0; second < 60; second += 3)
      subject.step(second, [{ throttled: 2, deliveries: ['a', 'b', 'c'] }]);
    expect(subject.last?.state.health).toBe('closed');
    subject.step(60, [{ throttled: 2, deliveries: ['a'] }]);
    expect(subject.last?.state.health).toBe('open');
  });
});

describe('the breaker', () => {
  it('waits 15 s, 30 s, then 60 s at most in the first hour, each up to a fifth longer', () => {
    const subject = new Subject();
    subject.trip(0);
    let from = 0;
    for (const wait of [15, 30, 60, 60, 60]) {
      expect(subject.probeAt - from).toBeGreaterThanOrEqual(wait);
      expect(subject.probeAt - from).toBeLessThanOrEqual(wait * 1.2);
      subject.probe({ fail: 1 });
      from = subject.probeAt < 0 ? 0 : subject.seen.nowMs / 1000 - T0 / 1000;
    }
  });

  it('waits up to 5 minutes after an hour and 30 minutes after a day', () => {
    const subject = new Subject();
    subject.trip(0);
    const waits: [second: number, wait: number][] = [];
    while (subject.probeAt < 30 * 3600) {
      const now = subject.probeAt + 0.2;
      subject.probe({ fail: 1 });
      waits.push([now, subject.probeAt - now]);
    }
    for (const [now, wait] of waits.slice(3)) {
      const longest = now < 3600 ? 60 : now < 86_400 ? 300 : 1_800;
      expect(wait).toBeLessThanOrEqual(longest * 1.2);
    }
    expect(waits.at(-1)![1]).toBeGreaterThanOrEqual(1_800);
    expect(waits.filter(([now]) => now < 3600).length).toBeLessThanOrEqual(62);
  });

  it('closes after two successes of probes, the second at once, and recovers at a tenth of the rate before', () => {
    const subject = new Subject({ sendRate: 50, oks: 0 });
    subject.trip(0);
    const first = subject.probe({ ok: 1 });
    expect(first.state.health).toBe('half_open');
    expect(first.gate.probeAtMs).toBe(subject.seen.nowMs);
    const second = subject.probe({ ok: 1 });
    expect(second.state.health).toBe('recovering');
    expect(second.gate).toMatchObject({ mode: 'pump', probeAtMs: null, rate: 5, resetTokens: true });
    expect(subject.edges).toEqual(['failing', 'opened', 'closed']);
  });

  it('takes the success of a test send for a probe’s, before one is due', () => {
    const subject = new Subject();
    subject.trip(0);
    const before = subject.probeAt;
    subject.step(2, [{ ok: 1, okStartedMs: T0 + 1_900 }]); // on its way since before the trip, for all one knows
    expect(subject.state?.health).toBe('open');
    expect(before).toBeGreaterThan(3);
    subject.step(3, [{ ok: 1, testOk: true, okStartedMs: T0 + 2_900 }]);
    expect(subject.state?.health).toBe('half_open');
    subject.step(4, [{ ok: 1, testOk: true, okStartedMs: T0 + 3_900 }]);
    expect(subject.state?.health).toBe('recovering');
  });

  it('is closed again when the pump has emptied, and says so once', () => {
    const subject = new Subject({ sendRate: 50 });
    subject.trip(0);
    subject.probe({ ok: 1 });
    subject.probe({ ok: 1 });
    const step = subject.step(60, [{ edit: 'drained' }], { mode: 'shared', held: 0 });
    expect(step.state.health).toBe('closed');
    expect(step.gate).toMatchObject({ mode: 'shared', rate: 5, probeAtMs: null, liveSinceMs: null });
    expect(step.wakeAtMs).toBe(T0 + 70_000);
    expect(subject.step(70).gate).toMatchObject({ mode: 'shared', rate: null });
    expect(subject.edges).toEqual(['failing', 'opened', 'closed', 'recovered']);
  });

  it('takes a pump that left without a word for emptied', () => {
    const subject = new Subject();
    subject.trip(0);
    subject.probe({ ok: 1 });
    subject.probe({ ok: 1 });
    expect(subject.step(60, [], { mode: 'shared', held: 0 }).state.health).toBe('closed');
  });

  it('opens again without a second `failing` when the receiver fails during recovery', () => {
    const subject = new Subject();
    subject.trip(0);
    subject.probe({ ok: 1 });
    subject.probe({ ok: 1 });
    subject.step(25, [{ fail: 20, deliveries: ['a'] }]);
    expect(subject.edges).toEqual(['failing', 'opened', 'closed', 'opened']);
    expect(subject.state).toMatchObject({ health: 'open' });
  });

  it('forgets one escalation per ten minutes of health', () => {
    const subject = new Subject();
    subject.trip(0);
    subject.probe({ fail: 1 });
    subject.probe({ ok: 1 });
    subject.probe({ ok: 1 });
    expect(subject.state?.k).toBe(2);
    subject.step(60 + 601, [{ edit: 'drained' }], { mode: 'shared', held: 0 });
    expect(subject.state?.k).toBe(1);
    subject.step(60 + 1_300);
    expect(subject.state?.k).toBe(0);
  });

  it('probes at once after an edit, enable or resume, and starts the disable clock anew on enable', () => {
    for (const edit of ['edit', 'enable', 'resume'] as const) {
      const subject = new Subject();
      subject.trip(0);
      subject.probe({ fail: 1, pauseUntilMs: T0 + 3_600_000 });
      const step = subject.step(40, [{ edit }]);
      expect(step.gate).toMatchObject({ probeAtMs: T0 + 40_000, pauseUntilMs: null });
      expect(step.state.health).toBe('half_open');
      expect(step.state.clock.attempts).toBe(edit === 'enable' ? 0 : 21);
    }
  });

  it('keeps a probe behind a longer Retry-After', () => {
    const subject = new Subject();
    subject.trip(0);
    subject.probe({ fail: 1, pauseUntilMs: T0 + 600_000 });
    expect(subject.probeAt).toBe(600);
  });
});

describe('what an edge says of the last failure', () => {
  const last = (step: HealthStep, kind: string) => {
    const edge = step.edges.find((one) => one.kind === kind);
    return [edge?.lastStatus, edge?.lastClass];
  };

  it('is the failure that tripped it, and nothing when it closes and has recovered', () => {
    const subject = new Subject();
    const step = subject.trip(0);
    expect(last(step, 'failing')).toEqual([503, 'http_503']);
    expect(last(step, 'opened')).toEqual([503, 'http_503']);
    subject.probe({ fail: 1, lastStatus: null, lastClass: 'connect_refused' });
    subject.probe({ ok: 1 });
    expect(last(subject.probe({ ok: 1 }), 'closed')).toEqual([null, null]);
    const drained = subject.step(60, [{ edit: 'drained' }], { mode: 'shared', held: 0 });
    expect(last(drained, 'recovered')).toEqual([null, null]);
  });

  it('is never an answer that was none: a batch that ended with a success names no failure', () => {
    const mixed = { ok: 10, fail: 20, lastStatus: 200, lastClass: 'ok', deliveries: ['a'] };
    expect(last(new Subject().step(0, [mixed]), 'failing')).toEqual([null, null]);
    const known = new Subject();
    known.step(0, [{ fail: 2, lastStatus: 500, lastClass: 'http_5xx' }]);
    expect(last(known.step(5, [mixed]), 'failing')).toEqual([500, 'http_5xx']);
    const stale = new Subject();
    stale.step(0, [{ fail: 2, lastStatus: 500, lastClass: 'http_5xx' }]);
    stale.step(10, [{ ok: 2 }]);
    expect(last(stale.step(3_600, [mixed]), 'failing')).toEqual([null, null]); // not what it said an hour ago
  });

  it('is of the receiver as it is set now: an edit forgets it, and a 410 is its own', () => {
    const subject = new Subject();
    subject.step(0, [{ fail: 1, lastStatus: 500, lastClass: 'http_5xx' }]);
    expect(subject.step(1, [{ edit: 'edit' }]).state).toMatchObject({ lastStatus: null, lastClass: null });
    subject.step(2, [{ fail: 1, lastStatus: 500, lastClass: 'http_5xx' }]);
    const gone = subject.step(3, [{ gone: true, neutral: 1, lastStatus: 200, lastClass: 'ok' }]);
    expect(last(gone, 'disabled')).toEqual([410, 'http_410']);
  });

  it('counts of an earlier mode, too: it may be all that is known', () => {
    const subject = new Subject();
    subject.trip(0);
    const step = subject.step(5, [{ epoch: 1, fail: 1, lastStatus: 504, lastClass: 'http_504' }]);
    expect(step.state).toMatchObject({ lastStatus: 504, lastClass: 'http_504' });
  });
});

describe('the state', () => {
  it('is read back from older or damaged JSON without an endpoint that is stuck', () => {
    expect(parseHealthState(null)).toBeNull();
    expect(parseHealthState({ health: 'well' })).toBeNull();
    const old = parseHealthState({ health: 'open', sinceMs: T0, window: 'none', run: { fails: 'x' } });
    expect(old).toMatchObject({ health: 'open', probeAtMs: T0, cause: 'failures', window: [] });
    expect(old?.run).toEqual({ sinceMs: null, fails: 0, throttled: 0, deliveries: [] });
    const subject = new Subject();
    subject.state = old;
    expect(subject.step(1).gate.probeAtMs).toBe(T0);
  });
});
