import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type PermitRow, permits, split } from '../../src/domain/permits.ts';

const row = (change: Partial<PermitRow> = {}): PermitRow => ({
  cap: 10,
  inFlight: 0,
  failsInRow: 0,
  silentMs: 0,
  probeAtMs: null,
  rate: null,
  tokens: 0,
  tokensAtMs: 0,
  pauseUntilMs: null,
  ...change,
});
const slots = (change: Partial<PermitRow>, nowMs = 0) => permits(row(change), nowMs).slots;

/** Asks for as much as it gets every `everyMs`; each request takes `lastsMs`. Answers the starts per second. */
function greedy(start: PermitRow, seconds: number, everyMs: number, lastsMs = 0): number[] {
  const perSecond = new Array<number>(seconds).fill(0);
  let state = start;
  let ends: number[] = [];
  for (let now = 0; now < seconds * 1000; now += everyMs) {
    ends = ends.filter((end) => end > now);
    const granted = permits({ ...state, inFlight: ends.length }, now);
    ends.push(...new Array<number>(granted.slots).fill(now + lastsMs));
    state = { ...state, tokens: Math.min(granted.tokens - granted.slots, 1e9), tokensAtMs: now };
    perSecond[Math.floor(now / 1000)]! += granted.slots;
  }
  return perSecond;
}

describe('permits', () => {
  it('grant the free slots of the cap', () => {
    expect(slots({ inFlight: 3 })).toBe(7);
    expect(slots({ inFlight: 10 })).toBe(0);
    expect(slots({ inFlight: 12 })).toBe(0);
  });

  it('leave two in flight after five failures in a row and none after twenty', () => {
    expect(slots({ failsInRow: 4 })).toBe(10);
    expect(slots({ failsInRow: 5 })).toBe(2);
    expect(slots({ failsInRow: 5, cap: 1 })).toBe(1);
    expect(slots({ failsInRow: 19, inFlight: 2 })).toBe(0);
    expect(slots({ failsInRow: 20 })).toBe(0);
  });

  it('leave a third of the cap to a receiver that has been silent for two seconds', () => {
    expect(slots({ silentMs: 2_000, inFlight: 1 })).toBe(9);
    expect(slots({ silentMs: 2_001, inFlight: 1 })).toBe(3);
    expect(slots({ silentMs: 60_000, cap: 1 })).toBe(1);
  });

  it('grant nothing before the end of a pause, not even a probe', () => {
    expect(slots({ pauseUntilMs: 1_000 }, 999)).toBe(0);
    expect(slots({ pauseUntilMs: 1_000, probeAtMs: 0 }, 999)).toBe(0);
    expect(slots({ pauseUntilMs: 1_000 }, 1_000)).toBe(10);
  });

  it('grant one probe from its time on, whatever failed before and however empty the bucket', () => {
    const gated = { probeAtMs: 500, failsInRow: 99, rate: 1, tokens: 0 };
    expect(slots(gated, 499)).toBe(0);
    expect(slots(gated, 500)).toBe(1);
  });

  it('never have two probes in flight', () => {
    const rows = fc.record({
      cap: fc.integer({ min: 1, max: 1_000 }),
      inFlight: fc.nat(20),
      failsInRow: fc.nat(30),
      silentMs: fc.nat(5_000),
      probeAtMs: fc.nat(1_000),
      rate: fc.option(fc.double({ min: 0.01, max: 500, noNaN: true })),
      tokens: fc.double({ min: 0, max: 500, noNaN: true }),
      tokensAtMs: fc.nat(1_000),
      pauseUntilMs: fc.option(fc.nat(2_000)),
    });
    fc.assert(
      fc.property(rows, fc.nat(2_000), (gated, now) => {
        const { slots } = permits(gated, now);
        expect(slots).toBeLessThanOrEqual(1);
        if (gated.inFlight > 0) expect(slots).toBe(0);
      }),
    );
  });

  it('never exceed the rate by more than its burst, nor the cap', () => {
    const cases = fc.record({
      rate: fc.double({ min: 0.1, max: 300, noNaN: true }),
      everyMs: fc.integer({ min: 1, max: 700 }),
      lastsMs: fc.nat(2_000),
      cap: fc.integer({ min: 1, max: 50 }),
    });
    fc.assert(
      fc.property(cases, ({ rate, everyMs, lastsMs, cap }) => {
        const starts = greedy(row({ rate, cap }), 20, everyMs, lastsMs);
        const sum = starts.reduce((a, b) => a + b, 0);
        expect(sum).toBeLessThanOrEqual(rate * 20 + Math.max(2, rate) + 1e-6);
      }),
      { numRuns: 60 },
    );
  });

  it('use a low rate fully: nothing is lost to rounding, and it is never stuck at one per second', () => {
    for (const rate of [0.2, 1, 1.3, 1.9, 2.5, 7.7]) {
      const starts = greedy(row({ rate, cap: 100 }), 100, 250);
      const sum = starts.reduce((a, b) => a + b, 0);
      expect(sum).toBeGreaterThan(rate * 100 - 3);
      expect(sum).toBeLessThanOrEqual(rate * 100 + Math.max(2, rate));
    }
  });

  it('hold a burst of two at any rate', () => {
    expect(permits(row({ rate: 0.2 }), 3_600_000)).toEqual({ slots: 2, tokens: 2 });
    expect(permits(row({ rate: 30, cap: 100 }), 3_600_000)).toEqual({ slots: 30, tokens: 30 });
  });

  it('do not refill before the time the bucket was emptied at, which may lie ahead', () => {
    expect(slots({ rate: 10, tokensAtMs: 5_000 }, 5_050)).toBe(0);
    expect(slots({ rate: 10, tokensAtMs: 5_000 }, 5_100)).toBe(1);
    expect(permits(row({ rate: 10, tokens: 1, tokensAtMs: 9_000 }), 5_000).tokens).toBe(1);
  });
});

describe('split', () => {
  it('sends live rows first but keeps the backlog its share over many small batches', () => {
    let pumped = 0;
    let backlog = 0;
    for (let i = 0; i < 1_000; i++) {
      const take = 1 + (i % 3);
      const taken = split(take, 1_000, 1_000, pumped, 0.1);
      pumped += take;
      backlog += taken.backlog;
      expect(taken.live + taken.backlog).toBe(take);
    }
    expect(backlog).toBe(Math.floor(pumped * 0.1));
  });

  it('leaves no room unused while either side has rows, and takes no more than there is', () => {
    const cases = fc.record({
      take: fc.nat(50),
      live: fc.nat(60),
      backlog: fc.nat(60),
      pumped: fc.nat(1_000_000),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(cases, ({ take, live, backlog, pumped, share }) => {
        const taken = split(take, live, backlog, pumped, share);
        expect(taken.live + taken.backlog).toBe(Math.min(take, live + backlog));
        expect(taken.live).toBeLessThanOrEqual(live);
        expect(taken.backlog).toBeLessThanOrEqual(backlog);
        expect(Math.min(taken.live, taken.backlog)).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});
