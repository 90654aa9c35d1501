/** Figures as text tables, for a terminal and for Markdown. */
import { judge, written } from './goals.ts';
import type { Figures, Results } from './types.ts';

const COLUMNS: [name: string, title: string, digits: number][] = [
  ['deliveries_per_s', 'del/s', 0],
  ['bare_per_s', 'bare/s', 0],
  ['ratio', 'ratio', 3],
  ['p50_ms', 'p50', 0],
  ['p99_ms', 'p99', 0],
  ['max_ms', 'max', 0],
  ['lost', 'lost', 0],
  ['duplicates', 'dup', 0],
  ['cpu_posthaste_us', 'ph µs', 0],
  ['cpu_postgres_us', 'pg µs', 0],
  ['cpu_temporal_us', 'tmp µs', 0],
  ['cpu_receiver_us', 'rcv µs', 0],
  ['sql_statements', 'sql', 3],
  ['wal_bytes', 'WAL B', 0],
  ['temporal_events', 'events', 3],
  ['temporal_actions', 'actions', 3],
  ['connections_per_1000', 'conn/1k', 1],
  ['rss_most_mb', 'RSS MB', 0],
];

/** In how many digits a figure is worth writing. */
export function show(value: number): string {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 4;
  return Number(value.toFixed(digits)).toLocaleString('en-US', { maximumFractionDigits: 4 });
}

const cell = (figures: Figures, name: string, digits: number): string =>
  figures[name] === undefined ? '' : figures[name].toLocaleString('en-US', { maximumFractionDigits: digits });

function rowsOf(results: Results): string[][] {
  return results.scenarios.map(({ id, median, failed }) =>
    failed === undefined
      ? [id, ...COLUMNS.map(([name, , digits]) => cell(median, name, digits))]
      : [id, `failed: ${failed.split('\n')[0]}`],
  );
}

/** Everything per delivery; what else a scenario has follows in lines of its own. */
export function textTable(results: Results): string {
  const header = ['', ...COLUMNS.map(([, title]) => title)];
  const rows = rowsOf(results);
  const widths = header.map((title, i) =>
    Math.max(title.length, ...rows.filter((row) => row.length > 2).map((row) => row[i]?.length ?? 0)),
  );
  const line = (row: string[]): string =>
    row.map((text, i) => (i === 0 ? text.padEnd(widths[0]!) : text.padStart(widths[i] ?? 0))).join('  ');
  const known = new Set(COLUMNS.map(([name]) => name));
  const further = results.scenarios.flatMap(({ id, median }) => {
    const rest = Object.entries(median).filter(([name]) => !known.has(name));
    return rest.length === 0
      ? []
      : [`${id}: ${rest.map(([name, value]) => `${name} ${show(value)}`).join(', ')}`];
  });
  const goals = judge(results)
    .filter(({ value }) => value !== null)
    .map(
      (g) =>
        `${g.good(g.value!) ? 'met   ' : 'MISSED'}  ${g.figure}: ${written(g.value!, g.unit)} (${g.goal})`,
    );
  return [line(header), ...rows.map(line), '', ...further, '', ...goals].join('\n');
}

const markdown = (header: string[], rows: string[][]): string =>
  [header, header.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');

export function goalsMarkdown(results: Results): string {
  return markdown(
    ['figure', 'goal', 'measured', ''],
    judge(results)
      .filter(({ value }) => value !== null)
      .map((g) => [g.figure, g.goal, written(g.value!, g.unit), g.good(g.value!) ? 'met' : '**missed**']),
  );
}

export function scenariosMarkdown(results: Results): string {
  const used = COLUMNS.filter(([name]) => results.scenarios.some(({ median }) => median[name] !== undefined));
  const rows = results.scenarios
    .filter(({ median }) => used.some(([name]) => median[name] !== undefined))
    .map(({ id, title, median }) => [
      `${id} ${title}`,
      ...used.map(([name, , digits]) => cell(median, name, digits)),
    ]);
  return markdown(['scenario', ...used.map(([, title]) => title)], rows);
}

/** The figures that only one scenario has, one table each. */
export function furtherMarkdown(results: Results): string {
  const known = new Set(COLUMNS.map(([name]) => name));
  return results.scenarios
    .map(({ id, title, median }) => {
      const rest = Object.entries(median).filter(([name]) => !known.has(name));
      if (rest.length === 0) return '';
      const text = rest.map(([name, value]) => `\`${name}\` ${show(value)}`).join(', ');
      return `- **${id}** ${title}: ${text}.`;
    })
    .filter((line) => line !== '')
    .join('\n');
}
