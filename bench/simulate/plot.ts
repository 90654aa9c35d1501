/** Offered rate over time as a small SVG, without a library: one line per policy, the capacity as a dashed one. */

export interface Line {
  readonly name: string;
  readonly colour: string;
  readonly perSecond: readonly number[];
}

const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT] = [720, 260, 56, 34, 34, 12];
const POINTS = 240;

/** Mean of each of at most POINTS slices: rates over minutes, not noise. */
function thin(values: readonly number[], seconds: number): [second: number, rate: number][] {
  const size = Math.max(1, Math.ceil(seconds / POINTS));
  const points: [number, number][] = [];
  for (let from = 0; from < Math.min(seconds, values.length); from += size) {
    const slice = values.slice(from, from + size);
    points.push([from + size / 2, slice.reduce((sum, value) => sum + value, 0) / slice.length]);
  }
  return points;
}

export function plot(title: string, lines: readonly Line[], capacity: number, seconds: number): string {
  const most = Math.max(
    capacity * 1.3,
    ...lines.flatMap(({ perSecond }) => thin(perSecond, seconds).map((p) => p[1])),
  );
  // Logarithmic where a policy is far above what the receiver can take.
  const log = most > capacity * 8;
  const scale = (rate: number) => (log ? Math.log10(1 + rate) / Math.log10(1 + most) : rate / most);
  const x = (second: number) => LEFT + (second / seconds) * (WIDTH - LEFT - RIGHT);
  const y = (rate: number) => HEIGHT - BOTTOM - scale(rate) * (HEIGHT - TOP - BOTTOM);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="11">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    `<text x="${LEFT}" y="14" font-size="13">${title}</text>`,
  ];
  const ticks = log
    ? [0, 10, 100, 1_000, 10_000].filter((tick) => tick <= most)
    : [0, 0.5, 1].map((k) => k * capacity);
  for (const tick of ticks) {
    out.push(`<path d="M${LEFT} ${y(tick).toFixed(1)}H${WIDTH - RIGHT}" stroke="#ddd"/>`);
    out.push(`<text x="${LEFT - 6}" y="${(y(tick) + 4).toFixed(1)}" text-anchor="end">${tick}/s</text>`);
  }
  for (let i = 0; i <= 4; i++) {
    const second = (seconds * i) / 4;
    const label = `${Math.round(second / 60)} min`;
    out.push(`<text x="${x(second).toFixed(1)}" y="${HEIGHT - 14}" text-anchor="middle">${label}</text>`);
  }
  out.push(
    `<path d="M${LEFT} ${y(capacity).toFixed(1)}H${WIDTH - RIGHT}" stroke="#000" stroke-dasharray="4 3"/>`,
  );
  lines.forEach(({ name, colour, perSecond }, i) => {
    const path = thin(perSecond, seconds).map(([s, rate]) => `${x(s).toFixed(1)} ${y(rate).toFixed(1)}`);
    out.push(`<path d="M${path.join('L')}" fill="none" stroke="${colour}" stroke-width="1.5"/>`);
    out.push(`<text x="${LEFT + 150 * i}" y="28" fill="${colour}">${name}</text>`);
  });
  out.push('</svg>');
  return `${out.join('\n')}\n`;
}
