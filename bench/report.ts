/**
 * node bench/report.ts bench/results/<date>.json [more.json …]
 *
 * Writes the list of scenarios and the tables of docs/performance.md between its markers, and the plots into
 * docs/performance/. With several files the later ones replace scenarios of the earlier: a scenario that was measured
 * again on its own. Without a file only the list is written.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { plots } from './lib/svg.ts';
import { furtherMarkdown, goalsMarkdown, scenariosMarkdown } from './lib/table.ts';
import type { Results } from './lib/types.ts';
import { SCENARIOS } from './scenarios/index.ts';

const DOCS = fileURLToPath(new URL('../docs/', import.meta.url));

export function merged(files: readonly Results[]): Results {
  const scenarios = new Map(files.flatMap((file) => file.scenarios.map((one) => [one.id, one] as const)));
  const order = SCENARIOS.map(({ id }) => id);
  return {
    ...files.at(-1)!,
    scenarios: [...scenarios.values()].sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id)),
  };
}

/** Puts `content` between `<!-- name -->` and `<!-- /name -->`. */
export function between(text: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const [from, to] = [text.indexOf(open), text.indexOf(close)];
  if (from < 0 || to < from) throw new Error(`docs/performance.md has no ${open} … ${close}`);
  return `${text.slice(0, from + open.length)}\n${content}\n${text.slice(to)}`;
}

function settings(results: Results): string {
  const { machine, versions, settings: how } = results;
  const scaled = how.scale === 1 ? '' : `, counts and durations × ${how.scale}`;
  return [
    `Measured ${results.at.slice(0, 10)}, median of ${how.runs} run${how.runs === 1 ? '' : 's'}${scaled}: ${machine.cores} cores (${machine.cpu}), ${machine.memoryGib} GiB, ${machine.os};`,
    `${Object.entries(versions)
      .map(([name, version]) => `${name.replaceAll('_', ' ')} ${version}`)
      .join(', ')}.`,
    `SQL statements counted by ${how.statements}.`,
  ].join('\n');
}

/** The list of scenarios, as docs/performance.md has it. */
export const scenarioList = (): string =>
  SCENARIOS.map(({ id, title, what }) => `- **${id}** ${title}. ${what}`).join('\n');

function main(paths: readonly string[]): void {
  const file = join(DOCS, 'performance.md');
  let text = between(readFileSync(file, 'utf8'), 'scenarios', scenarioList());
  if (paths.length > 0) {
    const results = merged(paths.map((path) => JSON.parse(readFileSync(path, 'utf8')) as Results));
    const drawn = plots(results);
    mkdirSync(join(DOCS, 'performance'), { recursive: true });
    for (const [name, svg] of drawn) writeFileSync(join(DOCS, 'performance', name), svg);
    const pictures = [...drawn.keys()].map((name) => `![${name.replace('.svg', '')}](performance/${name})`);
    text = between(text, 'goals', `${settings(results)}\n\n${goalsMarkdown(results)}`);
    text = between(
      text,
      'results',
      [scenariosMarkdown(results), furtherMarkdown(results), pictures.join('\n\n')].join('\n\n'),
    );
  }
  writeFileSync(file, text);
}

if (import.meta.main) main(process.argv.slice(2));
