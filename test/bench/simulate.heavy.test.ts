/** The whole matrix of the gates; docs/simulation.md explains the cells that miss one, which are listed here. */
import { describe, expect, it } from 'vitest';
import { type Cell, cells, missed, runCell } from '../../bench/simulate/matrix.ts';
import { CAPACITY, drainLimit } from '../../bench/simulate/outage.ts';
import { LIMITS, simulateDead, simulateLimited } from '../../bench/simulate/steady.ts';

const MINUTE = 60_000;

/** The ramp is most of the drain: its mean is low, whatever the peak. */
const mostlyRamp = ({ load, outageMs }: Cell) =>
  outageMs === MINUTE ? load <= 0.5 : outageMs === 30 * MINUTE && load === 0.1;
/** A few rows are refused more than once and wait for their own schedule; the others are in time, or nearly. */
const hasTail = ({ kind, load, outageMs, says429 }: Cell) =>
  outageMs === MINUTE && load === 0.5 && (kind === 'shed' || says429);

describe('every cell of the matrix', () => {
  it.each(cells())(
    'is within the gates: $kind, λ/C $load, outage of $outageMs ms, 429 $says429',
    (cell) => {
      const runs = runCell(cell, cell.outageMs === MINUTE ? [4, 5, 6] : [4]);
      const known = [...(mostlyRamp(cell) ? ['peakToMean'] : []), ...(hasTail(cell) ? ['drain'] : [])];
      expect(missed(runs).filter((gate) => !known.includes(gate))).toEqual([]);
      for (const run of runs) {
        expect(run.peak).toBeLessThanOrEqual(1.25 * CAPACITY);
        expect(run.burst).toBeLessThanOrEqual(1.5);
        expect(run.drainSeconds).toBeLessThanOrEqual(1.15 * drainLimit(run));
      }
    },
    120_000,
  );
});

describe('a receiver limited to half of what it is offered', () => {
  it.each(LIMITS)(
    'takes at least 90 % of its limit without a trip: $kind, Retry-After $retryAfter',
    (limit) => {
      for (const seed of [1, 2, 3]) {
        const run = simulateLimited(limit, seed);
        expect(run.taken).toBeGreaterThanOrEqual(0.9);
        expect(run.trips).toBe(0);
      }
    },
  );
});

describe('a dead receiver at 100 events/s', () => {
  it('gets at most 50 requests in the first minute and 100 in the first hour, however it is dead', () => {
    for (const downBy of ['refusing', 'hanging'] as const)
      for (const healthyMs of [0, 2 * MINUTE])
        for (let seed = 1; seed <= 10; seed++) {
          const dead = simulateDead(downBy, healthyMs, seed);
          expect(dead.firstMinute).toBeLessThanOrEqual(50);
          expect(dead.firstHour).toBeLessThanOrEqual(100);
        }
  });
});
