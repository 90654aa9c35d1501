/** All cells of the gates, and what each seed of a cell measured. */
import { drainLimit, type Gates, gatesOf, type Measured, type OutagePlan, simulateOutage } from './outage.ts';

const MINUTE = 60_000;
export const KINDS = ['shed', 'collapse', 'fragile'] as const;
export const LOADS = [0.1, 0.3, 0.5, 0.8] as const;
export const OUTAGES = [1 * MINUTE, 30 * MINUTE, 360 * MINUTE] as const;

export interface Cell {
  readonly kind: OutagePlan['kind'];
  readonly load: number;
  readonly outageMs: number;
  readonly says429: boolean;
}

export function cells(outages: readonly number[] = OUTAGES): Cell[] {
  return outages.flatMap((outageMs) =>
    [false, true].flatMap((says429) =>
      KINDS.flatMap((kind) => LOADS.map((load) => ({ kind, load, outageMs, says429 }))),
    ),
  );
}

/** Twice the ideal time and an hour: who needs longer has failed. */
const horizonOf = ({ load, outageMs }: Cell): number =>
  Math.ceil((2 * outageMs * load) / (1 - load) / 1000) * 1000 + 60 * MINUTE;

export const runCell = (cell: Cell, seeds: readonly number[]): Measured[] =>
  seeds.map((seed) => simulateOutage({ ...cell, policy: 'posthaste', seed, horizonMs: horizonOf(cell) }));

export const gateNames = ['peak', 'peakToMean', 'drain', 'live', 'down'] as const satisfies (keyof Gates)[];

/** Gates that not every seed met. */
export const missed = (runs: readonly Measured[]): (keyof Gates)[] =>
  gateNames.filter((gate) => runs.some((run) => !gatesOf(run)[gate]));

/** The run that came closest to its drain limit, or exceeded it most. */
export const slowest = (runs: readonly Measured[]): Measured =>
  runs.reduce((a, b) =>
    (b.drainSeconds ?? Infinity) / drainLimit(b) > (a.drainSeconds ?? Infinity) / drainLimit(a) ? b : a,
  );
