/**
 * npm run bench -- [--only S1b,S4] [--runs 3] [--scale 1] [--cpu-prof] [--out bench/results]
 *
 * Starts everything itself (PostgreSQL, Temporal, Posthaste from dist, publisher, receiver), runs the scenarios of
 * bench/scenarios one after the other, prints a table, and writes <out>/<date>.json and SVG plots beside it.
 * docs/performance.md explains scenarios and figures; `node bench/report.ts <json>` writes its tables.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem, type } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ensureTemporalCli } from '../src/embedded/temporal-cli.ts';
import { openBench } from './lib/bench.ts';
import { nowMs } from './lib/clock.ts';
import { dearestStatements } from './lib/cost.ts';
import { profileText, readProfiles } from './lib/profile.ts';
import { median } from './lib/reconcile.ts';
import { type Postgres, startBenchPostgres } from './lib/servers.ts';
import { plots } from './lib/svg.ts';
import { show, textTable } from './lib/table.ts';
import type { Figures, Outcome, Results, Scenario, ScenarioResult } from './lib/types.ts';
import { SCENARIOS } from './scenarios/index.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const { values: options } = parseArgs({
  options: {
    only: { type: 'string' },
    runs: { type: 'string', default: '3' },
    scale: { type: 'string', default: '1' },
    'cpu-prof': { type: 'boolean', default: false },
    'temporal-server': { type: 'string' },
    out: { type: 'string', default: join(ROOT, 'bench', 'results') },
  },
});
const runs = positive('runs', options.runs);
const scale = positive('scale', options.scale);
const chosen = choose(options.only);

function positive(name: string, text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  return stop(`--${name} must be a number above 0, not ${text}`);
}

function choose(only: string | undefined): readonly Scenario[] {
  if (only === undefined) return SCENARIOS;
  return only
    .split(',')
    .map(
      (id) =>
        SCENARIOS.find((scenario) => scenario.id.toLowerCase() === id.trim().toLowerCase()) ??
        stop(`--only knows ${SCENARIOS.map((scenario) => scenario.id).join(', ')}; not ${id}`),
    );
}

function stop(text: string): never {
  process.stderr.write(`bench: ${text}\n`);
  process.exit(2);
}

function medians(outcomes: readonly Outcome[]): Figures {
  const names = new Set(outcomes.flatMap(({ figures }) => Object.keys(figures)));
  return Object.fromEntries(
    [...names].map((name) => [
      name,
      median(outcomes.map(({ figures }) => figures[name]).filter((value) => value !== undefined)),
    ]),
  );
}

async function versionsOf(postgres: Postgres): Promise<Record<string, string>> {
  const of = (name: string): string =>
    JSON.parse(readFileSync(join(ROOT, 'node_modules', name, 'package.json'), 'utf8')).version;
  let commit = 'unknown';
  try {
    commit = execFileSync('git', ['describe', '--always', '--dirty'], { cwd: ROOT, encoding: 'utf8' }).trim();
  } catch {
    // not a checkout
  }
  return {
    posthaste: `${JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version} (${commit})`,
    node: process.version,
    postgresql: postgres.version,
    temporal:
      options['temporal-server'] === undefined
        ? execFileSync(await ensureTemporalCli(console.error), ['--version'], { encoding: 'utf8' })
            .trim()
            .replace(/^temporal version /, '')
        : `${execFileSync(join(options['temporal-server'], 'server'), ['--version'], { encoding: 'utf8' }).trim()} on PostgreSQL`,
    temporal_sdk: of('@temporalio/worker'),
    undici: of('undici'),
    pg: of('pg'),
  };
}

async function runOnce(postgres: Postgres, scenario: Scenario): Promise<Outcome & { complaints: string[] }> {
  const profileTo = options['cpu-prof'] ? mkdtempSync(join(tmpdir(), 'posthaste-bench-')) : undefined;
  const bench = await openBench({
    postgres,
    scale,
    ...(options['temporal-server'] === undefined ? {} : { temporalServer: options['temporal-server'] }),
    ...(profileTo === undefined ? {} : { profileTo }),
  });
  try {
    const outcome = await scenario.run(bench);
    if (profileTo !== undefined) {
      const { delivered } = await bench.receiver.counts();
      const whole = outcome.figures.cpu_posthaste_us;
      for (const profile of readProfiles(profileTo, bench.window)) {
        const title = `${scenario.id}, main thread of process ${profile.process}`;
        console.log(`\n${title}: ${profileText(profile, delivered)}`);
        if (whole !== undefined)
          console.log(`all threads of all processes: ${whole.toFixed(0)} µs per delivery`);
      }
      console.log(`\nin PostgreSQL, wall time per delivery:`);
      for (const { query, calls, ms } of await dearestStatements(bench.db)) {
        const us = ((ms * 1_000) / Math.max(1, delivered)).toFixed(1);
        console.log(`${us.padStart(8)} µs  ${String(calls).padStart(6)} calls  ${query}`);
      }
    }
    return { ...outcome, complaints: bench.complaints() };
  } finally {
    await bench.close();
    if (profileTo !== undefined) rmSync(profileTo, { recursive: true, force: true });
  }
}

async function runAll(postgres: Postgres, scenario: Scenario): Promise<ScenarioResult> {
  const outcomes: Outcome[] = [];
  const complaints: string[] = [];
  let failed: string | undefined;
  for (let run = 1; run <= runs && failed === undefined; run++) {
    const began = nowMs();
    try {
      const { complaints: said, ...outcome } = await runOnce(postgres, scenario);
      outcomes.push(outcome);
      complaints.push(...said.slice(0, 5).map((line) => line.slice(0, 400)));
      const main = Object.entries(outcome.figures).slice(0, 6);
      console.error(
        `${scenario.id} ${run}/${runs} in ${((nowMs() - began) / 1_000).toFixed(0)} s: ${main.map(([name, value]) => `${name} ${show(value)}`).join(', ')}`,
      );
    } catch (error) {
      failed = (error as Error).stack ?? String(error);
      console.error(`${scenario.id} ${run}/${runs} failed: ${failed}`);
    }
  }
  return {
    id: scenario.id,
    title: scenario.title,
    runs: outcomes,
    median: medians(outcomes),
    complaints,
    ...(failed === undefined ? {} : { failed }),
  };
}

const postgres = await startBenchPostgres();
const at = new Date().toISOString();
const results: Results = {
  at,
  machine: {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    os: `${type()} ${release()}`,
  },
  versions: await versionsOf(postgres),
  settings: { runs, scale, statements: 'pg_stat_statements, top level, without the harness’s own role' },
  scenarios: [],
};
mkdirSync(options.out, { recursive: true });
const stem = join(options.out, at.slice(0, 19).replaceAll(':', ''));
try {
  for (const scenario of chosen) {
    results.scenarios.push(await runAll(postgres, scenario));
    writeFileSync(`${stem}.json`, `${JSON.stringify(results, null, 1)}\n`); // what is measured is kept, whatever follows
  }
} finally {
  await postgres.stop();
}
for (const [name, svg] of plots(results)) writeFileSync(`${stem}-${name}`, svg);
console.log(`\n${textTable(results)}\n\n${stem}.json`);
process.exit(results.scenarios.some(({ failed }) => failed !== undefined) ? 1 : 0);
