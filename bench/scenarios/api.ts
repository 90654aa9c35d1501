/** Through the API: how long an event takes at a steady rate, and how many a second go all the way. */
import type { Bench } from '../lib/bench.ts';
import { reconcile } from '../lib/reconcile.ts';
import type { Figures, Outcome, Scenario } from '../lib/types.ts';
import { seedGroup, steady, timings } from './steady.ts';

const TENANTS = 100;

async function atRate(bench: Bench, rate: number): Promise<Outcome> {
  const tenants = await seedGroup(bench, 'ok', TENANTS);
  const before = await bench.bare();
  const app = await bench.start();
  const phase = await steady(bench, app, { rate, seconds: bench.seconds(30), tenants });
  const times = timings(phase.sent, await bench.receiver.received());
  const totals = await bench.totals((await bench.receiver.counts()).delivered);
  await bench.stopPosthaste();
  return {
    figures: {
      ...times,
      ...phase.figures,
      ...totals,
      bare_per_s: before.perSecond,
      bare_cpu_us: before.cpuUs,
    },
  };
}

const slow: Scenario = {
  id: 'S0-10',
  title: '10 events/s',
  what: '10 events of 1 KB a second through the API for 30 s, over 100 endpoints: from the moment an event is due to be sent to the API until the receiver has it.',
  run: (bench) => atRate(bench, 10),
};

const busy: Scenario = {
  id: 'S0-300',
  title: '300 events/s',
  what: 'The same at 300 a second.',
  run: (bench) => atRate(bench, 300),
};

const flatOut: Scenario = {
  id: 'S1',
  title: 'API as fast as accepted',
  what: '64 connections give 1 KB events to the API as fast as it takes them, for 20 s; the rate counts from the first request to the last arrival. Then the same at 90 % of that rate for 20 s, for the latencies.',
  async run(bench) {
    const tenants = await seedGroup(bench, 'ok', TENANTS);
    const before = await bench.bare();
    const app = await bench.start();
    await bench.publish(app, { tenants, bytes: 1_000, rate: 300, seconds: 6 });
    await bench.quiet(15_000);
    const { delivered: already } = await bench.receiver.counts();
    const from = await bench.snapshot();
    const flat = await bench.publish(app, {
      tenants,
      bytes: 1_000,
      connections: 64,
      seconds: bench.seconds(20),
    });
    await bench.receiver.reached(already + flat.accepted, 180_000);
    await bench.quiet(60_000);
    const cost = bench.costs(from, await bench.snapshot(), flat.accepted);
    const whole = reconcile(flat.sent, await bench.receiver.received());
    const began = flat.sent.reduce((least, { at }) => Math.min(least, at!), Number.POSITIVE_INFINITY);
    bench.window = { from: began, to: whole.lastAt };
    const rate = whole.delivered / ((whole.lastAt - began) / 1_000);
    const phase = await steady(bench, app, {
      rate: rate * 0.9,
      seconds: bench.seconds(20),
      tenants,
      warmUp: false,
      waitMs: 120_000,
    });
    const times = timings(phase.sent, await bench.receiver.received(), 'at_90_pct_');
    const totals = await bench.totals((await bench.receiver.counts()).delivered);
    await bench.stopPosthaste();
    const after = await bench.bare();
    const bare = (before.perSecond + after.perSecond) / 2;
    return {
      figures: {
        deliveries_per_s: rate,
        bare_per_s: bare,
        ratio: rate / bare,
        bare_cpu_us: (before.cpuUs + after.cpuUs) / 2,
        accepted_per_s: flat.accepted / flat.seconds,
        accept_p50_ms: flat.p50,
        accept_p99_ms: flat.p99,
        refused: flat.refused,
        lost: whole.lost,
        duplicates: whole.duplicates,
        ...times,
        ...cost,
        ...totals,
      },
    };
  },
};

const intake: Scenario = {
  id: 'INTAKE',
  title: 'API alone',
  what: 'The role `api` alone takes 1 KB events from 64 connections for 15 s, then the same with an id of the caller’s own on each (`keyed_`). Nothing is sent.',
  async run(bench) {
    const tenants = await seedGroup(bench, 'ok', TENANTS);
    const app = await bench.start('api');
    const load = { tenants, bytes: 1_000, connections: 64 };
    await bench.publish(app, { ...load, seconds: 3 });
    const measure = async (keyed: boolean, prefix: string): Promise<Figures> => {
      const from = await bench.snapshot();
      const done = await bench.publish(app, { ...load, keyed, seconds: bench.seconds(15) });
      const cost = bench.costs(from, await bench.snapshot(), done.accepted);
      return {
        [`${prefix}accepted_per_s`]: done.accepted / done.seconds,
        [`${prefix}accept_p50_ms`]: done.p50,
        [`${prefix}accept_p99_ms`]: done.p99,
        [`${prefix}refused`]: done.refused,
        [`${prefix}api_us`]: cost.cpu_posthaste_us!,
        [`${prefix}database_us`]: cost.cpu_postgres_us!,
      };
    };
    const figures = { ...(await measure(false, '')), ...(await measure(true, 'keyed_')) };
    await bench.stopPosthaste();
    return { figures };
  },
};

export const apiScenarios = [slow, busy, flatOut, intake];
