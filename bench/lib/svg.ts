/** Plots as plain SVG: bars beside each other, stacked bars, lines over seconds. No library, no script, both themes. */
import type { Plot, Results, ScenarioResult } from './types.ts';

const COLOURS = ['#2f6fde', '#e08a1e', '#3a9d5d', '#b5485d', '#7a5bc7', '#5f7480'];
const WIDTH = 860;
const LEFT = 190;
const RIGHT = 90;
const escapeXml = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const short = (value: number): string =>
  value.toLocaleString('en-US', { maximumFractionDigits: value >= 100 ? 0 : value >= 10 ? 1 : 2 });

function frame(title: string, height: number, body: string): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<style>text{fill:#24292f}.axis{stroke:#8c959f}.back{fill:#ffffff}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}}</style>`,
    `<rect class="back" width="100%" height="100%"/>`,
    `<text x="12" y="22" font-size="15" font-weight="600">${escapeXml(title)}</text>`,
    body,
    '</svg>\n',
  ].join('\n');
}

function legend(names: readonly string[], y: number): string {
  return names
    .map(
      (name, i) =>
        `<rect x="${LEFT + i * 130}" y="${y - 10}" width="12" height="12" fill="${COLOURS[i % COLOURS.length]}"/><text x="${LEFT + i * 130 + 17}" y="${y}">${escapeXml(name)}</text>`,
    )
    .join('\n');
}

export interface Bars {
  title: string;
  /** Names of the values of each row. */
  names: string[];
  rows: { label: string; values: number[] }[];
  /** On top of each other (parts of a whole), or beside each other. */
  stacked: boolean;
}

export function barsSvg({ title, names, rows, stacked }: Bars): string {
  const most = Math.max(
    1e-9,
    ...rows.map(({ values }) => (stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values))),
  );
  const scale = (value: number): number => (value / most) * (WIDTH - LEFT - RIGHT);
  const bar = 13;
  const pitch = (stacked ? bar : bar * names.length) + 12;
  const parts = [legend(names, 46)];
  rows.forEach(({ label, values }, r) => {
    const top = 62 + r * pitch;
    parts.push(
      `<text x="${LEFT - 8}" y="${top + (pitch - 12) / 2 + 4}" text-anchor="end">${escapeXml(label)}</text>`,
    );
    let x = LEFT;
    values.forEach((value, i) => {
      const y = stacked ? top : top + i * bar;
      const width = scale(value);
      parts.push(
        `<rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.5, width).toFixed(1)}" height="${bar - 1}" fill="${COLOURS[i % COLOURS.length]}"/>`,
      );
      if (!stacked)
        parts.push(`<text x="${(x + width + 5).toFixed(1)}" y="${y + 10}">${short(value)}</text>`);
      else x += width;
    });
    if (stacked) {
      const sum = values.reduce((a, b) => a + b, 0);
      parts.push(`<text x="${(x + 5).toFixed(1)}" y="${top + 10}">${short(sum)}</text>`);
    }
  });
  return frame(title, 72 + rows.length * pitch, parts.join('\n'));
}

export function linesSvg({ title, unit, series }: Plot): string {
  const height = 320;
  const [top, bottom, left] = [62, height - 34, 60];
  const seconds = Math.max(2, ...series.map(({ values }) => values.length));
  const most = Math.max(1, ...series.flatMap(({ values }) => values));
  const x = (second: number): number => left + (second / (seconds - 1)) * (WIDTH - left - 30);
  const y = (value: number): number => bottom - (value / most) * (bottom - top);
  const parts = [
    legend(
      series.map(({ name }) => name),
      46,
    ),
  ];
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const at = y(most * share);
    parts.push(
      `<line class="axis" x1="${left}" x2="${WIDTH - 30}" y1="${at}" y2="${at}" stroke-width="0.4"/>`,
      `<text x="${left - 6}" y="${at + 4}" text-anchor="end">${short(most * share)}</text>`,
    );
  }
  for (let i = 0; i <= 6; i++) {
    const second = Math.round(((seconds - 1) * i) / 6);
    parts.push(`<text x="${x(second)}" y="${bottom + 16}" text-anchor="middle">${second}</text>`);
  }
  parts.push(
    `<text x="${WIDTH - 30}" y="${bottom + 30}" text-anchor="end">seconds</text><text x="${left}" y="${top - 4}">${escapeXml(unit)}</text>`,
  );
  series.forEach(({ values }, i) => {
    const points = values.map((value, second) => `${x(second).toFixed(1)},${y(value).toFixed(1)}`).join(' ');
    parts.push(
      `<polyline points="${points}" fill="none" stroke="${COLOURS[i % COLOURS.length]}" stroke-width="1.4"/>`,
    );
  });
  return frame(title, height, parts.join('\n'));
}

const CPU = ['posthaste', 'postgres', 'temporal', 'receiver'];

/** Every plot of a results file, by file name. */
export function plots(results: Results): Map<string, string> {
  const drawn = new Map<string, string>();
  const good = results.scenarios.filter(({ failed }) => failed === undefined);
  const label = ({ id, title }: ScenarioResult): string => `${id} ${title}`.slice(0, 30);
  const rated = good.filter(
    ({ median }) => median.deliveries_per_s !== undefined && median.bare_per_s !== undefined,
  );
  if (rated.length > 0) {
    const rows = rated.map((one) => ({
      label: label(one),
      values: [one.median.deliveries_per_s!, one.median.bare_per_s!],
    }));
    drawn.set(
      'throughput.svg',
      barsSvg({ title: 'Deliveries per second', names: ['Posthaste', 'bare loop'], rows, stacked: false }),
    );
  }
  const costed = good.filter(({ median }) => median.cpu_posthaste_us !== undefined);
  if (costed.length > 0) {
    const rows = costed.map((one) => ({
      label: label(one),
      values: CPU.map((name) => one.median[`cpu_${name}_us`] ?? 0),
    }));
    drawn.set(
      'cpu.svg',
      barsSvg({ title: 'CPU per delivery, microseconds', names: CPU, rows, stacked: true }),
    );
  }
  const timed = good.flatMap((one) =>
    Object.keys(one.median)
      .filter((name) => name.endsWith('p99_ms') && !name.startsWith('accept'))
      .map((name) => {
        const prefix = name.slice(0, -'p99_ms'.length);
        return {
          label: `${one.id} ${prefix.replaceAll('_', ' ')}`.slice(0, 30),
          values: ['p50_ms', 'p95_ms', 'p99_ms'].map((end) => one.median[`${prefix}${end}`] ?? 0),
        };
      }),
  );
  if (timed.length > 0) {
    drawn.set(
      'latency.svg',
      barsSvg({
        title: 'Publish → receive, milliseconds',
        names: ['p50', 'p95', 'p99'],
        rows: timed,
        stacked: false,
      }),
    );
  }
  for (const { id, runs } of good) {
    for (const [i, plot] of (runs.at(-1)?.plots ?? []).entries()) {
      drawn.set(`${id.toLowerCase()}${i === 0 ? '' : `-${i}`}.svg`, linesSvg(plot));
    }
  }
  return drawn;
}
