/** The harness's own arithmetic: what is lost, what came twice, how long it took, where time went, which goal is met. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judge } from '../../bench/lib/goals.ts';
import { moduleOf, summarise } from '../../bench/lib/profile.ts';
import { latencyOf, median, perSecond, reconcile } from '../../bench/lib/reconcile.ts';
import { plots } from '../../bench/lib/svg.ts';
import { textTable } from '../../bench/lib/table.ts';
import type { Results } from '../../bench/lib/types.ts';
import { between, scenarioList } from '../../bench/report.ts';

describe('reconciling', () => {
  const sent = ['a', 'b', 'c'].map((id, i) => ({ id, at: i * 10, tenant: 't' }));

  it('tells lost, duplicate and wasted requests apart, and measures to the first 2xx', () => {
    const got = (id: string, at: number, status = 200, path = '/x/0') => ({ id, at, status, path });
    const received = [
      got('a', 50),
      got('a', 60),
      got('b', 40, 503),
      got('b', 70),
      got('z', 1),
      got('c', 9, 0),
    ];
    expect(reconcile(sent, received)).toEqual({
      expected: 3,
      delivered: 2,
      lost: 1,
      duplicates: 1,
      requests: 5,
      latency: { p50: 50, p95: 60, p99: 60, max: 60 },
      firstAt: 50,
      lastAt: 70,
    });
  });

  it('counts the same event at another endpoint as another delivery', () => {
    const received = ['/x/0', '/x/1'].flatMap((path) =>
      sent.map(({ id }) => ({ id, at: 100, status: 200, path })),
    );
    expect(reconcile(sent, received, 2)).toMatchObject({ expected: 6, delivered: 6, lost: 0, duplicates: 0 });
  });

  it('knows nothing about the age of what waited', () => {
    const waited = [{ id: 'a', at: null, tenant: 't' }];
    expect(reconcile(waited, [{ id: 'a', at: 5, status: 200, path: '/x/0' }]).latency).toBeNull();
  });
});

describe('statistics', () => {
  it('take the nearest rank, and the middle of an even number', () => {
    expect(latencyOf(Array.from({ length: 100 }, (_, i) => i + 1))).toEqual({
      p50: 50,
      p95: 95,
      p99: 99,
      max: 100,
    });
    expect(latencyOf([])).toBeNull();
    expect(median([4, 1, 3])).toBe(3);
    expect(median([1, 2])).toBe(1.5);
    expect(perSecond([0, 999, 1_000, 5_000, -1], 0, 3)).toEqual([2, 1, 0]);
  });
});

describe('a CPU profile', () => {
  it('is summed by module, without idling, within a stretch of time', () => {
    const frame = (functionName: string, url: string) => ({ functionName, url, lineNumber: 6 });
    const nodes = [
      { id: 1, callFrame: frame('post', 'file:///x/dist/egress/post.js') },
      { id: 2, callFrame: frame('(idle)', '') },
      { id: 3, callFrame: frame('parse', 'file:///x/node_modules/pg-protocol/dist/parser.js') },
    ];
    const profile = {
      nodes,
      startTime: 1_000_000,
      endTime: 5_000_000,
      samples: [1, 2, 3, 1],
      timeDeltas: [1_000_000, 1_000_000, 1_000_000, 1_000_000],
    };
    expect(summarise(profile)).toMatchObject({
      busySeconds: 3,
      modules: [
        { name: 'src/egress/post.ts', share: 2 / 3 },
        { name: 'pg', share: 1 / 3 },
      ],
    });
    expect(summarise(profile, { from: 3_500, to: 4_500 }).modules).toEqual([{ name: 'pg', share: 1 }]);
  });

  it('names modules as people do', () => {
    expect(moduleOf('(garbage collector)', '')).toBe('gc');
    expect(moduleOf('x', 'file:///a/node_modules/@temporalio/worker/lib/worker.js')).toBe('temporal');
    expect(moduleOf('x', 'file:///a/node_modules/undici/lib/dispatcher/pool.js')).toBe('undici');
    expect(moduleOf('x', 'node:internal/streams/readable')).toBe('node:internal/streams');
    expect(moduleOf('x', 'node:net')).toBe('node:net');
  });
});

describe('results', () => {
  const figures = { deliveries_per_s: 4_000, bare_per_s: 8_000, ratio: 0.5, p50_ms: 1, p95_ms: 2, p99_ms: 3 };
  const results: Results = {
    at: '2026-01-01T00:00:00.000Z',
    machine: { cpu: 'x', cores: 2, memoryGib: 1, os: 'x' },
    versions: {},
    settings: { runs: 1, scale: 1, statements: 'x' },
    scenarios: [
      { id: 'S1b', title: 'a & b', runs: [{ figures }], median: figures, complaints: [] },
      { id: 'S1', title: 'x', runs: [], median: {}, complaints: [], failed: 'it broke\nthere' },
    ],
  };

  it('are judged by the goals whose scenarios ran', () => {
    const judged = judge(results).filter(({ value }) => value !== null);
    expect(judged.map(({ figure, value, good }) => [figure, good(value!)])).toEqual([
      ['S1b outbox → receiver', true],
      ['duplicates and losses without faults', true],
    ]);
  });

  it('become a table that names what failed, and well-formed plots', () => {
    expect(textTable(results)).toMatch(/S1 +failed: it broke/);
    const drawn = plots(results);
    expect([...drawn.keys()]).toEqual(['throughput.svg', 'latency.svg']);
    expect(drawn.get('throughput.svg')).toContain('S1b a &amp; b');
  });

  it('are explained by a list that has every scenario', () => {
    const text = readFileSync(new URL('../../docs/performance.md', import.meta.url), 'utf8');
    expect(between(text, 'scenarios', scenarioList()), 'run: node bench/report.ts').toBe(text);
  });

  it('replace what stands between the markers of a document, and refuse one without', () => {
    expect(between('x <!-- a -->old<!-- /a --> y', 'a', 'new')).toBe('x <!-- a -->\nnew\n<!-- /a --> y');
    expect(() => between('x', 'a', 'new')).toThrow('<!-- a -->');
  });
});
