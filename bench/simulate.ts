/**
 * Outages and limits under a simulated clock, with the functions that decide in the product. Prints tables; with
 * `--write` also puts them into docs/simulation.md, and the plots into docs/img.
 * Usage: npm run simulate [-- --write]   (some minutes)
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Cell, cells, missed, OUTAGES, runCell, slowest } from './simulate/matrix.ts';
import { CAPACITY, drainLimit, type Measured, simulateOutage } from './simulate/outage.ts';
import { plot } from './simulate/plot.ts';
import { LIMITS, simulateDead, simulateLimited } from './simulate/steady.ts';
import type { Policy } from './simulate/world.ts';

const WRITE = process.argv.includes('--write');
const DOCS = join(import.meta.dirname, '..', 'docs');
const SEEDS = [1, 2, 3];
const HOUR = 3_600_000;
const lines: string[] = [];

function print(line = ''): void {
  console.log(line);
  lines.push(line);
}
const row = (...columns: (string | number)[]) => print(`| ${columns.join(' | ')} |`);
function head(...columns: string[]): void {
  row(...columns);
  row(...columns.map((_, i) => (i === 0 ? '---' : '--:')));
}
const most = (runs: readonly Measured[], value: (run: Measured) => number) => Math.max(...runs.map(value));
const minutes = (ms: number) => (ms < HOUR ? `${ms / 60_000} min` : `${ms / HOUR} h`);
const seconds = (value: number | null) => (value === null ? 'never' : `${Math.round(value)} s`);
const percent = (value: number) => `${(100 * value).toFixed(1)} %`;

function cellRow(cell: Cell, runs: readonly Measured[]): void {
  const slow = slowest(runs);
  row(
    `${cell.kind} ${cell.says429 ? 429 : 503}`,
    cell.load,
    (most(runs, (run) => run.peak) / CAPACITY).toFixed(2),
    most(runs, (run) => run.peak / run.mean).toFixed(2),
    most(runs, (run) => run.burst).toFixed(2),
    seconds(slow.drainSeconds),
    seconds(slow.drain999Seconds),
    seconds(drainLimit(slow)),
    `${most(runs, (run) => run.liveP95Seconds).toFixed(0)} s`,
    `${(2 * Math.min(...runs.map((run) => run.probeSeconds))).toFixed(0)} s`,
    seconds(most(runs, (run) => run.downSeconds)),
    most(runs, (run) => run.wasted),
    missed(runs).join(', ') || '–',
  );
}

for (const outageMs of OUTAGES) {
  print(`\n### Outage of ${minutes(outageMs)}\n`);
  const live = 'live p95 ≤';
  head(
    'receiver',
    'λ/C',
    'peak/C',
    'peak/mean',
    'burst',
    'drain',
    '99.9 %',
    'limit',
    'live p95',
    live,
    'crashed',
    'wasted',
    'missed',
  );
  for (const cell of cells([outageMs]))
    cellRow(cell, runCell(cell, outageMs > HOUR ? SEEDS.slice(0, 1) : SEEDS));
}

print('\n### Against the alternatives\n');
print('Outage of 30 min, λ/C = 0.5, 503, four hours after the receiver is back.\n');
head('policy', 'receiver', 'peak/C', 'drain', 'live p95', 'wasted', 'requests', 'crashed');
const NAMES: Record<Policy, string> = {
  posthaste: 'Posthaste',
  release_all: 'release all',
  backoff: 'backoff only',
};
const COLOURS: Record<Policy, string> = { posthaste: '#0a7d33', release_all: '#c22', backoff: '#c80' };
const plots: [string, string][] = [];
for (const kind of ['shed', 'collapse', 'fragile'] as const) {
  const runs = (['posthaste', 'release_all', 'backoff'] as const).map((policy) =>
    simulateOutage({
      policy,
      kind,
      load: 0.5,
      outageMs: HOUR / 2,
      says429: false,
      seed: 1,
      horizonMs: 4 * HOUR,
    }),
  );
  for (const run of runs)
    row(
      NAMES[run.plan.policy],
      kind,
      (run.peak / CAPACITY).toFixed(2),
      run.drainSeconds === null ? 'never' : `${(run.drainSeconds / 60).toFixed(0)} min`,
      run.liveP95Seconds * 1000 >= run.plan.horizonMs ? 'never' : seconds(run.liveP95Seconds),
      run.wasted,
      run.attempts,
      seconds(run.downSeconds),
    );
  const drawn = runs.map(({ plan: { policy }, perSecond }) => ({
    name: NAMES[policy],
    colour: COLOURS[policy],
    perSecond,
  }));
  plots.push([
    `recovery-${kind}.svg`,
    plot(`Requests per second after 30 min down: ${kind}`, drawn, CAPACITY, 3_600),
  ]);
}

print('\n### A receiver limited to half of what it is offered\n');
head('limit', 'Retry-After', '2xx of the limit', '429 of all requests', 'trips');
for (const limit of LIMITS) {
  const runs = SEEDS.map((seed) => simulateLimited(limit, seed));
  const asks =
    limit.retryAfter === null
      ? 'none'
      : limit.retryAfter === 'rest'
        ? 'rest of the minute'
        : `${limit.retryAfter} s`;
  row(
    limit.kind === 'bucket' ? '50/s' : '3,000 per minute',
    asks,
    percent(Math.min(...runs.map((run) => run.taken))),
    percent(Math.max(...runs.map((run) => run.refused))),
    Math.max(...runs.map((run) => run.trips)),
  );
}
const limited = simulateLimited(LIMITS[0]!, 1);
const line = { name: 'Posthaste', colour: COLOURS.posthaste, perSecond: limited.perSecond };
plots.push(['limited.svg', plot('Offered 100/s, limit 50/s, 429 without Retry-After', [line], 50, 900)]);

print('\n### A dead receiver at 100 events/s\n');
head('it', 'requests in the first minute', 'in the first hour');
for (const downBy of ['refusing', 'hanging'] as const)
  for (const healthyMs of [0, 120_000]) {
    const runs = SEEDS.map((seed) => simulateDead(downBy, healthyMs, seed));
    row(
      `${downBy === 'refusing' ? 'refuses' : 'hangs'}, ${healthyMs > 0 ? 'healthy before' : 'never was healthy'}`,
      Math.max(...runs.map((run) => run.firstMinute)),
      Math.max(...runs.map((run) => run.firstHour)),
    );
  }

if (WRITE) {
  await mkdir(join(DOCS, 'img'), { recursive: true });
  for (const [name, svg] of plots) await writeFile(join(DOCS, 'img', name), svg);
  const path = join(DOCS, 'simulation.md');
  const [before, , after] = (await readFile(path, 'utf8')).split(/^<!-- \/?figures -->$/m);
  if (before === undefined || after === undefined)
    throw new Error(
      `${path} has no lines <!-- figures --> and <!-- /figures -->: add them around the tables`,
    );
  const text = `${before}<!-- figures -->\n${lines.join('\n')}\n\n<!-- /figures -->${after}`;
  await writeFile(path, text);
}
