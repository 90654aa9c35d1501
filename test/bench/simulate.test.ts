/** The gates of endpoint health in the cells that take seconds; the whole matrix is in the heavy suite. */
import { describe, expect, it } from 'vitest';
import { cells, missed, runCell } from '../../bench/simulate/matrix.ts';
import { CAPACITY, drainLimit, simulateOutage } from '../../bench/simulate/outage.ts';
import { LIMITS, simulateDead, simulateLimited } from '../../bench/simulate/steady.ts';

const MINUTE = 60_000;

describe('after an outage of 30 minutes', () => {
  it.each(cells([30 * MINUTE]).filter(({ load }) => load === 0.3))(
    'a receiver that can $kind is within all gates at λ/C = $load (429: $says429)',
    (cell) => {
      expect(missed(runCell(cell, [1]))).toEqual([]);
    },
  );

  it('the alternatives overwhelm a receiver, or never let it recover', () => {
    const plan = { kind: 'collapse', load: 0.5, outageMs: 30 * MINUTE, says429: false, seed: 1 } as const;
    const all = simulateOutage({ ...plan, policy: 'release_all', horizonMs: 10 * MINUTE });
    expect(all.peak).toBeGreaterThan(100 * CAPACITY);
    const backoff = simulateOutage({ ...plan, policy: 'backoff', horizonMs: 20 * MINUTE });
    expect(backoff.drainSeconds).toBeNull();
    expect(backoff.wasted).toBeGreaterThan(200_000);
  });
});

describe('after an outage of one minute', () => {
  it.each(cells([MINUTE]).filter(({ load }) => load === 0.8))(
    'a receiver that can $kind is drained in time and not overwhelmed at λ/C = $load (429: $says429)',
    (cell) => {
      const [run] = runCell(cell, [1]);
      expect(missed([run!]).filter((gate) => gate !== 'peakToMean')).toEqual([]);
      expect(run!.drainSeconds).toBeLessThanOrEqual(drainLimit(run!));
    },
  );
});

describe('a receiver limited to half of what it is offered', () => {
  it.each(LIMITS.filter(({ retryAfter }) => retryAfter === null))(
    'takes at least 90 % of its limit, without a trip: $kind, without Retry-After',
    (limit) => {
      const run = simulateLimited(limit, 7);
      expect(run.taken).toBeGreaterThanOrEqual(0.9);
      expect(run.refused).toBeLessThan(0.01);
      expect(run.trips).toBe(0);
    },
  );
});

describe('a dead receiver at 100 events/s', () => {
  it.each([
    ['refusing', 2 * MINUTE],
    ['hanging', 0],
  ] as const)(
    'that is %s gets at most 50 requests in a minute and 100 in an hour (healthy for %i ms)',
    (by, ms) => {
      const dead = simulateDead(by, ms, 11);
      expect(dead.firstMinute).toBeLessThanOrEqual(50);
      expect(dead.firstHour).toBeLessThanOrEqual(100);
    },
  );
});
