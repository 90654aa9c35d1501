/** The known ways in which breakers go wrong, one test each. */
import { describe, expect, it } from 'vitest';
import { cooldownMs } from '../../src/domain/breaker.ts';
import { reduceHealth } from '../../src/domain/health.ts';
import { permits } from '../../src/domain/permits.ts';
import { factAt, Subject, seenAt, T0 } from '../support/health.ts';

const at = (second: number) => T0 + second * 1000;

describe('a breaker', () => {
  it('is not closed by successes of requests that were sent before it opened', () => {
    const subject = new Subject({ mode: 'pump' });
    subject.trip(0);
    const probeAt = subject.probeAt;
    subject.step(probeAt + 1, [{ ok: 3, okStartedMs: at(-1) }]);
    subject.step(probeAt + 2, [{ ok: 3, okStartedMs: at(-0.5) }]);
    expect(subject.state?.successes).toBe(0);
    expect(subject.state?.health).toBe('half_open');
    // Nor when nobody says when they started, nor by those of an older epoch.
    const silent = new Subject({ mode: 'pump' });
    silent.trip(0);
    silent.step(silent.probeAt + 0.1, [{ ok: 1 }]);
    silent.step(silent.probeAt + 0.1, [{ ok: 1, epoch: -1, okStartedMs: at(60) }]);
    expect(silent.state).toMatchObject({ successes: 0, health: 'half_open' });
  });

  it('still takes 410, Retry-After and the disable clock from results of an older epoch, and nothing else', () => {
    const subject = new Subject({ epoch: 7 });
    const step = subject.step(0, [{ epoch: 6, fail: 30, deliveries: ['a', 'b', 'c'], pauseUntilMs: at(90) }]);
    expect(step.state.health).toBe('closed');
    expect(step.gate.pauseUntilMs).toBe(at(90));
    expect(step.state.clock).toMatchObject({ sinceMs: T0, attempts: 30 });
    expect(subject.step(1, [{ epoch: 6, gone: true }]).disable).toBe('gone');
  });

  it('probes again, after the same wait, when its probe was lost', () => {
    const subject = new Subject();
    subject.trip(0);
    const k = subject.state!.k;
    subject.probe({ lost: 1 });
    expect(subject.state).toMatchObject({ health: 'open', k });
    const wait = subject.probeAt - (subject.seen.nowMs - T0) / 1000;
    expect(wait).toBeGreaterThanOrEqual(15);
    expect(wait).toBeLessThanOrEqual(18);
  });

  it('probes again when nothing is ever heard of its probe', () => {
    const subject = new Subject();
    subject.trip(0);
    const wakeAt = subject.last!.wakeAtMs!;
    expect(wakeAt).toBeLessThanOrEqual(at(18 + 60));
    const step = subject.step((wakeAt - T0) / 1000);
    expect(step.gate.probeAtMs).toBe(wakeAt);
    expect(step.wakeAtMs).toBeGreaterThan(wakeAt);
  });

  it('never has two probes out, even when the gate is armed anew while one is under way', () => {
    const subject = new Subject();
    subject.trip(0);
    const row = {
      cap: 10,
      failsInRow: 20,
      silentMs: 0,
      rate: null,
      tokens: 0,
      tokensAtMs: 0,
      pauseUntilMs: null,
    };
    const edited = subject.step(20, [{ edit: 'edit' }]);
    const { probeAtMs } = edited.gate;
    expect(permits({ ...row, inFlight: 1, probeAtMs }, at(20)).slots).toBe(0);
    expect(permits({ ...row, inFlight: 0, probeAtMs }, at(20)).slots).toBe(1);
    // The result of the probe that was under way belongs to the endpoint before the edit.
    subject.step(21, [{ fail: 1, startedMs: at(17) }]);
    expect(subject.state?.health).toBe('half_open');
  });

  it('trips by what all workers saw together, few results each', () => {
    const step = reduceHealth(
      null,
      seenAt(T0, { lastSuccessAtMs: T0 - 500, sendRate: 1, oks: 10 }),
      Array.from({ length: 20 }, (_, i) => factAt(T0 - 400 + i * 20, { fail: 1, deliveries: [`d${i}`] })),
      { frozen: false },
    );
    expect(step.state.health).toBe('open');
  });

  it('needs two successes in a row, and remembers past trips when the receiver flaps', () => {
    const subject = new Subject();
    subject.trip(0);
    const waits = [subject.probeAt];
    for (let i = 0; i < 4; i++) {
      subject.probe({ ok: 1 });
      expect(subject.state?.health).toBe('half_open');
      const now = subject.probeAt + 0.2;
      subject.probe({ fail: 1 });
      waits.push(subject.probeAt - now);
    }
    expect(subject.state?.health).toBe('open');
    expect(waits[1]).toBeGreaterThanOrEqual(30);
    expect(waits[2]).toBeGreaterThanOrEqual(60);
  });

  it('does not count refusals, our own faults and lost workers as failures', () => {
    const subject = new Subject();
    for (let i = 0; i < 100; i++)
      subject.step(i, [{ config: 1, neutral: 3, lost: 1, deliveries: ['a', 'b', 'c', 'd'] }]);
    expect(subject.state).toMatchObject({ health: 'closed', k: 0 });
    expect(subject.edges).toEqual([]);
  });

  it('spreads the probes of endpoints that failed together', () => {
    const waits = Array.from({ length: 1_000 }, (_, i) => cooldownMs(`ep_${i}`, 2, 3, 0));
    const counts = new Array<number>(12).fill(0);
    for (const wait of waits) counts[Math.floor((wait - 60_000) / 1_000)]! += 1;
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(60_000);
    expect(Math.max(...waits)).toBeLessThan(72_000);
    expect(Math.min(...counts)).toBeGreaterThan(50);
  });

  it('does not trip, escalate, give notice or disable while it is us that fail', () => {
    const subject = new Subject();
    for (let i = 0; i < 10; i++) {
      const step = subject.step(i, [{ fail: 50, deliveries: ['a', 'b', 'c'] }], {}, true);
      expect(step.state.health).toBe('closed');
      expect(step.gate.resetFailsInRow).toBe(true);
    }
    expect(subject.state?.clock.attempts).toBe(0);
    expect(subject.step(11).state.health).toBe('closed');
    const open = new Subject();
    open.trip(0);
    const { k } = open.state!;
    const started = at(open.probeAt);
    open.step(open.probeAt + 1, [{ fail: 1, startedMs: started }], {}, true);
    expect(open.state).toMatchObject({ health: 'open', k });
    expect(open.step(7 * 86_400, [], {}, true).disable).toBeNull();
  });

  it('lets what waited longest go without ending it: what came in since the last failed probe is live', () => {
    const subject = new Subject();
    subject.trip(0);
    const probedAt = at(subject.probeAt);
    subject.probe({ fail: 1 });
    subject.probe({ ok: 1 });
    const step = subject.probe({ ok: 1 });
    expect(step.gate.liveSinceMs).toBe(probedAt - 15_000);
  });

  it('keeps a state of bounded size, however much fails and waits', () => {
    const subject = new Subject({ held: 10_000 });
    let largest = 0;
    for (let i = 0; i < 2_000; i++) {
      subject.step(i, [{ fail: 1, ok: 1, deliveries: [`a${i}`, `b${i}`, `c${i}`] }, { throttled: 1 }]);
      largest = Math.max(largest, JSON.stringify(subject.state).length);
    }
    expect(largest).toBeLessThan(3_000);
  });

  it('neither sticks nor leaps when the clock does', () => {
    const back = new Subject();
    back.trip(0);
    back.step(-3_600);
    expect(back.probeAt).toBeLessThanOrEqual(-3_600 + 72);
    const paced = new Subject({ sendRate: 50 });
    paced.trip(0);
    paced.probe({ ok: 1 });
    paced.probe({ ok: 1 });
    const rate = paced.last!.gate.rate!;
    expect(paced.step(7_200).gate.rate).toBeLessThanOrEqual(rate * 2 ** (5 / 20) + 1e-9);
    expect(paced.step(3_600).gate.rate).toBeLessThanOrEqual(rate * 2 ** (5 / 20) + 1e-9);
  });
});
