/** The goals, and how each is read from the figures of a run. Pure. */
import type { Figures, Results } from './types.ts';

export interface Goal {
  figure: string;
  goal: string;
  /** Null: its scenario was not run, or has no such figure. */
  measure: (of: (scenario: string) => Figures | undefined) => number | null;
  good: (value: number) => boolean;
  /** How the value is written: a share in per cent, or a unit behind the number. */
  unit: '%' | 'ms' | '/s' | '/min' | 'MB' | '×' | '';
}

const take =
  (scenario: string, figure: string) =>
  (of: (scenario: string) => Figures | undefined): number | null =>
    of(scenario)?.[figure] ?? null;
const over =
  (scenario: string, other: string, figure: string) =>
  (of: (scenario: string) => Figures | undefined): number | null => {
    const [a, b] = [of(scenario)?.[figure], of(other)?.[figure]];
    return a === undefined || b === undefined ? null : a / b;
  };
const atLeast = (limit: number) => (value: number) => value >= limit;
const atMost = (limit: number) => (value: number) => value <= limit;

/** Duplicates and losses where nothing fails. */
const CALM = [
  'S0-10',
  'S0-300',
  'S1',
  'S1b',
  'S1t-hot',
  'S1t-cold',
  'S2',
  'S3',
  'S10',
  'S11',
  'S12',
  'ONE',
  'NEVER',
];

export const GOALS: readonly Goal[] = [
  {
    figure: 'S1b outbox → receiver',
    goal: '≥ 50 % of the bare loop',
    measure: take('S1b', 'ratio'),
    good: atLeast(0.5),
    unit: '%',
  },
  {
    figure: 'S1 API → receiver',
    goal: '≥ 38 % of the bare loop',
    measure: take('S1', 'ratio'),
    good: atLeast(0.38),
    unit: '%',
  },
  {
    figure: 'S1 p99 at 90 % of that rate',
    goal: '≤ 1 s',
    measure: take('S1', 'at_90_pct_p99_ms'),
    good: atMost(1_000),
    unit: 'ms',
  },
  {
    figure: 'S0 at 10/s, p50',
    goal: '≤ 40 ms',
    measure: take('S0-10', 'p50_ms'),
    good: atMost(40),
    unit: 'ms',
  },
  {
    figure: 'S0 at 10/s, p99',
    goal: '≤ 150 ms',
    measure: take('S0-10', 'p99_ms'),
    good: atMost(150),
    unit: 'ms',
  },
  {
    figure: 'S0 at 300/s, p99',
    goal: '≤ 300 ms',
    measure: take('S0-300', 'p99_ms'),
    good: atMost(300),
    unit: 'ms',
  },
  {
    figure: 'S4 healthy p99, over the same without hanging',
    goal: '≤ 1.5 ×',
    measure: take('S4', 'ratio_p99'),
    good: atMost(1.5),
    unit: '×',
  },
  {
    figure: 'S6b, of S1b',
    goal: '≥ 75 %',
    measure: over('S6b', 'S1b', 'deliveries_per_s'),
    good: atLeast(0.75),
    unit: '%',
  },
  { figure: 'S6b undelivered', goal: '0', measure: take('S6b', 'lost'), good: atMost(0), unit: '' },
  {
    figure: 'S6c healthy p99, over the one before',
    goal: '≤ 2 ×',
    measure: take('S6c', 'ratio_p99'),
    good: atMost(2),
    unit: '×',
  },
  {
    figure: 'S6c healthy deliveries/s, of those before',
    goal: '≥ 80 %',
    measure: take('S6c', 'throughput_share'),
    good: atLeast(0.8),
    unit: '%',
  },
  { figure: 'S6c undelivered', goal: '0', measure: take('S6c', 'undelivered'), good: atMost(0), unit: '' },
  {
    figure: 'S8 p95 of the small tenant beside the burst, over the one alone',
    goal: '≤ 2 ×',
    measure: take('S8', 'ratio_p95'),
    good: atMost(2),
    unit: '×',
  },
  {
    figure: 'S3 deliveries/s, of S1b',
    goal: '≥ 100 %',
    measure: over('S3', 'S1b', 'deliveries_per_s'),
    good: atLeast(1),
    unit: '%',
  },
  {
    figure: 'one endpoint, cap 10, 1 ms receiver',
    goal: '≥ 1,000/s',
    measure: take('ONE', 'deliveries_per_s'),
    good: atLeast(1_000),
    unit: '/s',
  },
  {
    figure: 'S12, with old deliveries over without',
    goal: '≥ 85 %',
    measure: take('S12', 'ratio_to_empty'),
    good: atLeast(0.85),
    unit: '%',
  },
  {
    figure: 'S9 idle, Posthaste',
    goal: '≤ 3 % of a core',
    measure: (of) => (of('S9') === undefined ? null : of('S9')!.posthaste_pct! / 100),
    good: atMost(0.03),
    unit: '%',
  },
  {
    figure: 'S9 idle, SQL statements',
    goal: '≤ 20/s',
    measure: take('S9', 'sql_per_s'),
    good: atMost(20),
    unit: '/s',
  },
  {
    figure: 'S9 idle, Temporal actions beyond pollers',
    goal: '≤ 2/min',
    measure: take('S9', 'temporal_actions_per_min'),
    good: atMost(2),
    unit: '/min',
  },
  {
    figure: 'memory of `all` under S1',
    goal: '≤ 450 MB',
    measure: take('S1', 'rss_most_mb'),
    good: atMost(450),
    unit: 'MB',
  },
  {
    figure: 'Temporal actions per delivery in S1b',
    goal: '≤ 0.05',
    measure: take('S1b', 'temporal_actions'),
    good: atMost(0.05),
    unit: '',
  },
  {
    figure: 'duplicates and losses without faults',
    goal: '0',
    measure: (of) => {
      const seen = CALM.map(of).filter((figures) => figures !== undefined);
      return seen.length === 0 ? null : seen.reduce((sum, f) => sum + (f.lost ?? 0) + (f.duplicates ?? 0), 0);
    },
    good: atMost(0),
    unit: '',
  },
];

export interface Judged extends Goal {
  value: number | null;
}

export function judge(results: Results): Judged[] {
  const of = (id: string): Figures | undefined => {
    const scenario = results.scenarios.find((one) => one.id === id);
    return scenario === undefined || scenario.failed !== undefined ? undefined : scenario.median;
  };
  return GOALS.map((goal) => ({ ...goal, value: goal.measure(of) }));
}

/** A value as people read it. */
export function written(value: number, unit: Goal['unit']): string {
  const scaled = unit === '%' ? value * 100 : value;
  const digits = Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : Math.abs(scaled) >= 1 ? 2 : 3;
  const number = Number(scaled.toFixed(digits)).toLocaleString('en-US', { maximumFractionDigits: 3 });
  return unit === '' ? number : unit === '/s' || unit === '/min' ? `${number}${unit}` : `${number} ${unit}`;
}
