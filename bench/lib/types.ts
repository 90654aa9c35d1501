/** What a scenario is and what it answers; what a results file holds. */
import type { Bench } from './bench.ts';

/** Figures by name; the end of a name is its unit: _ms, _s, _us, _bytes, _mb, _per_s, _pct. No unit: a count or ratio. */
export type Figures = Record<string, number>;

/** A line of a plot over time. */
export interface Series {
  name: string;
  /** Value of second 0, 1, 2 … */
  values: number[];
}

export interface Plot {
  title: string;
  /** What the values are, for the axis. */
  unit: string;
  series: Series[];
}

export interface Outcome {
  figures: Figures;
  plots?: Plot[];
}

export interface Scenario {
  id: string;
  /** A few words. */
  title: string;
  /** What happens in it and what is measured, one or two sentences, for the documentation. */
  what: string;
  run(bench: Bench): Promise<Outcome>;
}

export interface ScenarioResult {
  id: string;
  title: string;
  runs: Outcome[];
  /** Per figure, over the runs. */
  median: Figures;
  /** First lines of warnings that Posthaste logged. */
  complaints: string[];
  failed?: string;
}

export interface Results {
  at: string;
  machine: { cpu: string; cores: number; memoryGib: number; os: string };
  versions: Record<string, string>;
  settings: { runs: number; scale: number; statements: string };
  scenarios: ScenarioResult[];
}
