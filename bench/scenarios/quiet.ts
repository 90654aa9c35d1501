/** Neighbours and quiet: a burst beside a small tenant, nothing at all, and many endpoints at a trickle. */
import { nowMs } from '../lib/clock.ts';
import { workRequests } from '../lib/cost.ts';
import { enqueue } from '../lib/seed.ts';
import type { Scenario } from '../lib/types.ts';
import { seedGroup, steady, timings, within } from './steady.ts';

const burst: Scenario = {
  id: 'S8',
  title: 'burst of 50,000 beside 1/s',
  what: 'One tenant sends an event a second; alone for 60 s, then while another tenant commits 50,000 events at once (one endpoint, 100 slots). `ratio_p95` compares the small tenant’s p95 while the burst drains with the one alone.',
  async run(bench) {
    const [small] = await seedGroup(bench, 'small', 1);
    const [big] = await seedGroup(bench, 'big', 1, { cap: 100 });
    const app = await bench.start();
    const seconds = bench.seconds(60, 20);
    const alone = await steady(bench, app, { rate: 1, seconds, tenants: [small!] });
    const count = bench.count(50_000);
    const { delivered } = await bench.receiver.counts();
    await enqueue(bench.db, { tenants: [big!], count, bytes: 1_000, chunk: count });
    const began = nowMs();
    const drained = bench.receiver.reached(delivered + count, 300_000).then((at) => at ?? nowMs());
    const { sent } = await bench.publish(app, { tenants: [small!], bytes: 1_000, rate: 1, seconds });
    const drainedAt = await drained;
    await bench.quiet(60_000);
    const received = await bench.receiver.received();
    const before = timings(alone.sent, received, 'alone_');
    const during = timings(within(sent, 0, Math.max(drainedAt, began + 5_000)), received, 'beside_burst_');
    await bench.stopPosthaste();
    return {
      figures: {
        ...before,
        ...during,
        ratio_p95: during.beside_burst_p95_ms! / before.alone_p95_ms!,
        burst: count,
        burst_s: (drainedAt - began) / 1_000,
        burst_deliveries_per_s: count / ((drainedAt - began) / 1_000),
      },
    };
  },
};

const idle: Scenario = {
  id: 'S9',
  title: 'idle',
  what: '`posthaste all` after some work, then nothing for 20 s, then 60 s measured.',
  async run(bench) {
    const tenants = await seedGroup(bench, 'ok', 100);
    const app = await bench.start();
    await steady(bench, app, { rate: 50, seconds: 5, tenants });
    await new Promise((resolve) => setTimeout(resolve, bench.seconds(20, 10) * 1_000));
    const from = await bench.snapshot();
    const seconds = bench.seconds(60, 15);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1_000));
    const to = await bench.snapshot();
    const totals = await bench.totals(1);
    await bench.stopPosthaste();
    const pct = (ms: number): number => (ms / (to.at - from.at)) * 100;
    const perSecond = (count: number): number => (count / (to.at - from.at)) * 1_000;
    return {
      figures: {
        posthaste_pct: pct(to.posthaste - from.posthaste),
        postgres_pct: pct(to.postgres - from.postgres),
        temporal_pct: pct(to.temporal - from.temporal),
        sql_per_s: perSecond(to.statements - from.statements),
        wal_bytes_per_s: perSecond(to.walBytes - from.walBytes),
        temporal_actions_per_min: perSecond(to.actions - from.actions) * 60,
        temporal_requests_per_min: perSecond(workRequests(to) - workRequests(from)) * 60,
        rss_end_mb: totals.rss_end_mb!,
      },
    };
  },
};

const trickle: Scenario = {
  id: 'S10',
  title: '10,000 endpoints at a trickle',
  what: '100 events/s for 120 s over 10,000 endpoints: each gets one event or two.',
  async run(bench) {
    const tenants = await seedGroup(bench, 'ok', bench.count(10_000));
    const bare = await bench.bare();
    const app = await bench.start();
    const phase = await steady(bench, app, { rate: 100, seconds: bench.seconds(120), tenants });
    const times = timings(phase.sent, await bench.receiver.received());
    const totals = await bench.totals((await bench.receiver.counts()).delivered);
    await bench.stopPosthaste();
    return { figures: { ...times, ...phase.figures, ...totals, bare_per_s: bare.perSecond } };
  },
};

export const quietScenarios = [burst, idle, trickle];
