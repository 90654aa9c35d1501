/** Receivers and workers that fail: what the others feel, what is wasted, how it recovers. */
import { nowMs, sleep } from '../lib/clock.ts';
import type { Snapshot } from '../lib/cost.ts';
import type { Behaviour } from '../lib/receiver.ts';
import { perSecond, type Received, reconcile } from '../lib/reconcile.ts';
import type { Plot, Scenario } from '../lib/types.ts';
import { drain } from './drain.ts';
import { seedGroup, steady, timings, within } from './steady.ts';

const ofGroup = (received: readonly Received[], group: string): Received[] =>
  received.filter(({ path }) => path.startsWith(`/${group}/`));

const hanging: Scenario = {
  id: 'S4',
  title: '10 % to hanging endpoints',
  what: '300 events/s, first all to 90 healthy endpoints, then a tenth of them to 10 endpoints that accept and never answer. `ratio_p99` is the healthy p99 with hanging endpoints over the one without.',
  async run(bench) {
    const healthy = await seedGroup(bench, 'ok', 90);
    const bad = await seedGroup(bench, 'hang', 10);
    await bench.receiver.set({ hang: { kind: 'hang' } });
    const bare = await bench.bare();
    const app = await bench.start();
    const seconds = bench.seconds(60, 10);
    const alone = await steady(bench, app, { rate: 300, seconds, tenants: healthy });
    const mixed = [...healthy, ...bad];
    const from = await bench.snapshot();
    const published = await bench.publish(app, { tenants: mixed, bytes: 1_000, rate: 300, seconds });
    await sleep(5_000);
    const to = await bench.snapshot();
    const received = await bench.receiver.received();
    const withHanging = published.sent.filter(({ tenant }) => !bad.includes(tenant));
    const without = timings(alone.sent, received, 'without_');
    const healthyTimes = timings(withHanging, received, 'healthy_');
    const totals = await bench.totals(alone.sent.length + withHanging.length);
    await bench.stopPosthaste();
    return {
      figures: {
        bare_per_s: bare.perSecond,
        ...without,
        ...healthyTimes,
        ratio_p99: healthyTimes.healthy_p99_ms! / without.without_p99_ms!,
        requests_to_hanging: ofGroup(received, 'hang').length,
        ...bench.costs(from, to, withHanging.length),
        ...totals,
      },
    };
  },
};

const outage: Scenario = {
  id: 'S5',
  title: 'outage of 2 minutes and recovery',
  what: 'One endpoint gets 50 events/s, 20 others 100/s together. It refuses connections for 120 s, then serves 100/s (503 above) while its 50/s go on. Drain time counts from the return until its backlog is gone.',
  async run(bench) {
    const others = await seedGroup(bench, 'ok', 20);
    const port = await bench.receiver.listen({ port: 0 });
    const victims = await seedGroup(bench, 'victim', 1, {
      cap: 50,
      url: (n) => `http://127.0.0.1:${port}/victim/${n}`,
    });
    const app = await bench.start();
    const [before, down] = [bench.seconds(20), bench.seconds(120, 10)];
    const after = bench.seconds(420, 60);
    // Every third event is the victim’s.
    const tenants = others.flatMap((tenant, i) => (i % 2 === 0 ? [victims[0]!, tenant] : [tenant]));
    await bench.publish(app, { tenants, bytes: 1_000, rate: 150, seconds: 6 });
    await bench.quiet(15_000);
    const began = nowMs();
    const publishing = bench.publish(app, {
      tenants,
      bytes: 1_000,
      rate: 150,
      seconds: before + down + after,
    });
    await sleep(before * 1_000);
    await bench.receiver.close(port);
    const downAt = nowMs();
    await sleep(down * 1_000);
    await bench.receiver.set({ victim: { kind: 'limit', perSecond: 100, status: 503 } });
    await bench.receiver.listen({ port });
    const upAt = nowMs();
    const { sent } = await publishing;
    await sleep(5_000);
    const received = await bench.receiver.received();
    const victim = sent.filter(({ tenant }) => tenant === victims[0]);
    const rest = sent.filter(({ tenant }) => tenant !== victims[0]);
    const mine = ofGroup(received, 'victim');
    const old = new Set(victim.filter(({ at }) => at! < upAt).map(({ id }) => id));
    const backlog = mine.filter(({ id, status, at }) => old.has(id) && status === 200 && at > upAt);
    const drainedAt = backlog.reduce((last, { at }) => Math.max(last, at), upAt);
    const whole = reconcile(victim, received);
    const seconds = before + down + after;
    const good = perSecond(
      mine.filter(({ status }) => status === 200).map(({ at }) => at),
      began,
      seconds,
    );
    const all = perSecond(
      mine.map(({ at }) => at),
      began,
      seconds,
    );
    const plots: Plot[] = [
      {
        title: 'S5: requests to the endpoint that was down',
        unit: 'per second',
        series: [
          { name: 'answered 200', values: good },
          { name: 'answered 503', values: all.map((count, i) => count - good[i]!) },
        ],
      },
    ];
    const upSecond = Math.floor((upAt - began) / 1_000);
    const figures = {
      ...timings(within(rest, began, downAt), received, 'others_before_'),
      ...timings(within(rest, downAt, upAt), received, 'others_during_'),
      ...timings(within(rest, upAt, drainedAt), received, 'others_draining_'),
      backlog: backlog.length,
      drain_s: (drainedAt - upAt) / 1_000,
      most_per_s: Math.max(0, ...all.slice(upSecond)),
      refused_after_return: mine.filter(({ at, status }) => at > upAt && status !== 200).length,
      victim_undelivered: whole.lost,
      duplicates: whole.duplicates,
    };
    await bench.stopPosthaste();
    return { figures, plots };
  },
};

const limited: Scenario = {
  id: 'S6',
  title: '429 at half the offered load',
  what: 'One endpoint gets 50 events/s and takes 25/s, answering 429 with `Retry-After: 1` above; 20 others get 100/s together; 120 s.',
  async run(bench) {
    const others = await seedGroup(bench, 'ok', 20);
    const victims = await seedGroup(bench, 'limited', 1, { cap: 50 });
    await bench.receiver.set({ limited: { kind: 'limit', perSecond: 25, status: 429, retryAfter: 1 } });
    const app = await bench.start();
    const seconds = bench.seconds(120, 20);
    const alone = await steady(bench, app, { rate: 100, seconds: Math.min(20, seconds), tenants: others });
    // Every third event is the victim’s.
    const tenants = others.flatMap((tenant, i) => (i % 2 === 0 ? [victims[0]!, tenant] : [tenant]));
    const began = nowMs();
    const { sent } = await bench.publish(app, { tenants, bytes: 1_000, rate: 150, seconds });
    const ended = nowMs();
    await sleep(5_000);
    const received = await bench.receiver.received();
    const mine = ofGroup(received, 'limited').filter(({ at }) => at <= ended);
    const good = mine.filter(({ status }) => status === 200);
    const rest = sent.filter(({ tenant }) => tenant !== victims[0]);
    const served = good.length / ((ended - began) / 1_000);
    await bench.stopPosthaste();
    return {
      figures: {
        ...timings(alone.sent, received, 'others_alone_'),
        ...timings(rest, received, 'others_'),
        served_per_s: served,
        share_of_limit: served / 25,
        refused_per_s: (mine.length - good.length) / ((ended - began) / 1_000),
        requests_per_delivery: mine.length / Math.max(1, good.length),
      },
      plots: [
        {
          title: 'S6: requests to the endpoint that takes 25/s',
          unit: 'per second',
          series: [
            {
              name: 'answered 200',
              values: perSecond(
                good.map(({ at }) => at),
                began,
                seconds,
              ),
            },
            {
              name: 'answered 429',
              values: perSecond(
                mine.filter(({ status }) => status === 429).map(({ at }) => at),
                began,
                seconds,
              ),
            },
          ],
        },
      ],
    };
  },
};

const sporadic: Scenario = {
  id: 'S6b',
  title: '5 % of requests fail',
  what: '100,000 waiting events for 10,000 endpoints; each request has a 5 % chance of a 500. The rate is that of the first 94 % delivered; the rest waits for its retry (default policy). `all_s` is the time until everything is delivered, `bare_cold_per_s` the bare loop with a connection for each POST: so many endpoints keep none.',
  async run(bench) {
    const { figures, reconciled, received } = await drain(bench, {
      events: bench.count(100_000),
      tenants: bench.count(10_000),
      behaviour: { kind: 'fail', share: 0.05, status: 500 },
      timeoutMs: 900_000,
    });
    const cold = await bench.bare({ cold: true });
    const good = received.filter(({ status }) => status === 200).map(({ at }) => at);
    good.sort((a, b) => a - b);
    const most = Math.floor(reconciled.expected * 0.94);
    const rate = most / ((good[most - 1]! - good[0]!) / 1_000);
    return {
      figures: {
        ...figures,
        deliveries_per_s: rate,
        ratio: rate / figures.bare_per_s!,
        bare_cold_per_s: cold.perSecond,
        all_s: (reconciled.lastAt - reconciled.firstAt) / 1_000,
        requests_per_delivery: reconciled.requests / reconciled.delivered,
      },
    };
  },
};

/** Each in its own way. `refused` endpoints have a port of their own, which closes. */
const WAYS: Record<string, Behaviour> = {
  reset: { kind: 'reset' },
  status500: { kind: 'status', status: 500 },
  status503: { kind: 'status', status: 503, retryAfter: 20 },
  hang: { kind: 'hang' },
  trickle: { kind: 'trickle' },
  garbage: { kind: 'garbage' },
};

const storm = (id: string, rate: number): Scenario => ({
  id,
  title: `30 % of 1,000 endpoints fail, ${rate} events/s`,
  what: `${rate} events/s over 1,000 endpoints; for 180 s 300 of them fail, each in its own way: refused, reset, 500, 503 with Retry-After, hanging, a byte at a time, bytes that are not HTTP. Then all are well; 'undelivered' is what is not there 300 s later. 'ratio_p99' is the p99 of the healthy while the others fail over the one before, 'throughput_share' their deliveries per second likewise; 'calls_per_s' are Temporal starts and signals while they fail.`,
  async run(bench) {
    const well = 700;
    const perWay = 43;
    const healthy = await seedGroup(bench, 'ok', well);
    const port = await bench.receiver.listen({ port: 0 });
    const url = (n: number) => `http://127.0.0.1:${port}/refused/${n}`;
    const sick = await seedGroup(bench, 'refused', perWay, { url });
    for (const way of Object.keys(WAYS)) sick.push(...(await seedGroup(bench, way, perWay)));
    const app = await bench.start();
    const tenants = mix(healthy, sick);
    const [before, down, after] = [bench.seconds(30), bench.seconds(180, 20), bench.seconds(60)];
    await bench.publish(app, { tenants, bytes: 1_000, rate, seconds: 6 });
    await bench.quiet(15_000);
    const began = nowMs();
    const publishing = bench.publish(app, {
      tenants,
      bytes: 1_000,
      rate,
      seconds: before + down + after,
    });
    await sleep(before * 1_000);
    const downAt = nowMs();
    const callsBefore = calls(await bench.snapshot());
    await bench.receiver.close(port);
    await bench.receiver.set(WAYS);
    await sleep(down * 1_000);
    await bench.receiver.set(Object.fromEntries(Object.keys(WAYS).map((way) => [way, { kind: 'ok' }])));
    await bench.receiver.listen({ port });
    const upAt = nowMs();
    const callsAfter = calls(await bench.snapshot());
    const { sent } = await publishing;
    await bench.quiet(bench.seconds(300, 60) * 1_000);
    const received = await bench.receiver.received();
    const isSick = new Set(sick);
    const rest = sent.filter(({ tenant }) => !isSick.has(tenant));
    const ill = reconcile(
      sent.filter(({ tenant }) => isSick.has(tenant)),
      received,
    );
    const healthyBefore = timings(within(rest, began, downAt), received, 'healthy_before_');
    const healthyDuring = timings(within(rest, downAt, upAt), received, 'healthy_during_');
    const restIds = new Set(rest.map(({ id }) => id));
    const arrivals = (from: number, to: number): number =>
      received.filter(({ at, id, status }) => at >= from && at < to && status === 200 && restIds.has(id))
        .length /
      (to - from);
    await bench.stopPosthaste();
    return {
      figures: {
        ...healthyBefore,
        ...healthyDuring,
        ratio_p99: healthyDuring.healthy_during_p99_ms! / healthyBefore.healthy_before_p99_ms!,
        throughput_share: arrivals(downAt, upAt) / arrivals(began, downAt),
        calls_per_s: (callsAfter - callsBefore) / ((upAt - downAt) / 1_000),
        wasted_requests: received.filter(({ at, status }) => at > downAt && at < upAt && status !== 200)
          .length,
        undelivered: ill.lost,
        duplicates: ill.duplicates,
        recovered_s: (ill.lastAt - upAt) / 1_000,
      },
    };
  },
});

const calls = ({ requests }: Snapshot): number =>
  ['StartWorkflowExecution', 'SignalWithStartWorkflowExecution', 'SignalWorkflowExecution'].reduce(
    (sum, name) => sum + (requests[name] ?? 0),
    0,
  );

/** Spread evenly, so that no moment has only the sick. */
function mix(a: readonly string[], b: readonly string[]): string[] {
  const all = [
    ...a.map((name, i) => [i / a.length, name] as const),
    ...b.map((name, i) => [i / b.length, name] as const),
  ];
  return all.sort(([x], [y]) => x - y).map(([, name]) => name);
}

const killed: Scenario = {
  id: 'S7',
  title: 'kill -9 of a worker',
  what: '300 events/s for 60 s through an API with its relay and two workers; in the middle one worker is killed with SIGKILL, 5 s later another takes its place. Its claims run out first, so what it held takes up to 45 s.',
  async run(bench) {
    const tenants = await seedGroup(bench, 'ok', 100);
    await bench.receiver.set({ ok: { kind: 'ok', delayMs: 20 } });
    const app = await bench.start('api');
    await bench.start('relay');
    const victim = await bench.start('worker');
    await bench.start('worker');
    const seconds = bench.seconds(60, 20);
    await bench.publish(app, { tenants, bytes: 1_000, rate: 300, seconds: 6 });
    await bench.quiet(15_000);
    const publishing = bench.publish(app, { tenants, bytes: 1_000, rate: 300, seconds });
    await sleep(seconds * 500);
    const killedAt = nowMs();
    await victim.kill();
    await sleep(5_000);
    await bench.start('worker');
    const { sent } = await publishing;
    await bench.quiet(180_000);
    const received = await bench.receiver.received();
    const { rows } = await bench.db.query(
      `select count(*)::int as unknown from posthaste.attempts where class = 'worker_lost'`,
    );
    const whole = reconcile(sent, received);
    await bench.stopPosthaste();
    return {
      figures: {
        ...timings(sent, received),
        ...timings(within(sent, 0, killedAt - 1_000), received, 'before_'),
        lost: whole.lost,
        duplicates: whole.duplicates,
        unknown_attempts: rows[0].unknown,
      },
    };
  },
};

export const faultScenarios = [
  hanging,
  outage,
  limited,
  sporadic,
  storm('S6c', 1_000),
  storm('S6c-300', 300),
  killed,
];
