/** The hot path: how fast a backlog goes out, by size, fan-out, transport, processes and history. */
import { makeCertificate } from '../../test/support/hostile/certificates.ts';
import type { Bench } from '../lib/bench.ts';
import { seedHistory } from '../lib/seed.ts';
import type { Figures, Outcome, Scenario } from '../lib/types.ts';
import { drain } from './drain.ts';
import { seedGroup, steady, timings } from './steady.ts';

const only = async (drained: Promise<{ figures: Figures }>): Promise<Outcome> => ({
  figures: (await drained).figures,
});

const backlog: Scenario = {
  id: 'S1b',
  title: 'backlog of 100,000',
  what: '100,000 events of 1 KB wait in the outbox for 100 endpoints of as many tenants when Posthaste starts.',
  run: (bench) => only(drain(bench, { events: bench.count(100_000), tenants: 100 })),
};

const large: Scenario = {
  id: 'S2',
  title: '7 KB',
  what: 'The same with 30,000 events of 7 KB.',
  run: (bench) => only(drain(bench, { events: bench.count(30_000), tenants: 100, bytes: 7_000 })),
};

const fanOut: Scenario = {
  id: 'S3',
  title: 'fan-out 20',
  what: '5,000 events of 1 KB, each for 20 endpoints of its tenant: 100,000 deliveries to 2,000 endpoints.',
  run: (bench) => only(drain(bench, { events: bench.count(5_000), tenants: 100, fanOut: 20 })),
};

const HOSTS = 100;
const PORTS = 100;
const DELAY_MS = 200;

/** TLS receivers on many addresses and ports; what trusts them. */
async function tlsOrigins(bench: Bench) {
  const hosts = Array.from({ length: HOSTS }, (_, i) => `127.0.0.${i + 1}`);
  const authority = makeCertificate({ name: 'bench authority', authority: true });
  const leaf = makeCertificate({ name: 'bench receivers', issuer: authority, hosts });
  const ports: number[] = [];
  for (let i = 0; i < PORTS; i++) {
    // All addresses: loopback has as many as we like, and a listener each would be ten thousand of them.
    ports.push(
      await bench.receiver.listen({ port: 0, host: '0.0.0.0', tls: { cert: leaf.cert, key: leaf.key } }),
    );
  }
  await bench.receiver.set({ bare: { kind: 'ok', delayMs: DELAY_MS } });
  return {
    ca: authority.cert,
    origin: (host: number, port: number) => `https://${hosts[host % HOSTS]}:${ports[port % PORTS]}`,
  };
}

/** @param hot origins with many deliveries each; otherwise every delivery has an origin of its own. */
async function tls(bench: Bench, hot: boolean): Promise<Outcome> {
  const { ca, origin } = await tlsOrigins(bench);
  const { mkdtemp, rm, writeFile } = await import('node:fs/promises');
  const { join } = await import('node:path');
  const { tmpdir } = await import('node:os');
  const folder = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
  const bundle = join(folder, 'ca.pem');
  await writeFile(bundle, ca);
  try {
    const count = bench.count(hot ? 30_000 : 10_000);
    return await only(
      drain(bench, {
        events: count,
        tenants: hot ? 100 : count,
        behaviour: { kind: 'ok', delayMs: DELAY_MS },
        env: { NODE_EXTRA_CA_CERTS: bundle },
        // As many at once as Posthaste has requests under way at most.
        bare: { origin: origin(0, 0), connections: 1_000, ca },
        url: (tenant) =>
          `${hot ? origin(0, tenant) : origin(Math.floor(tenant / PORTS), tenant)}/drain/${tenant}`,
      }),
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const hotTls: Scenario = {
  id: 'S1t-hot',
  title: 'TLS, 200 ms, 100 origins',
  what: '30,000 events over TLS to 100 origins that take 200 ms to answer.',
  run: (bench) => tls(bench, true),
};

const coldTls: Scenario = {
  id: 'S1t-cold',
  title: 'TLS, 200 ms, 10,000 cold origins',
  what: '10,000 events over TLS to as many origins, one each, that take 200 ms: every delivery is a handshake.',
  run: (bench) => tls(bench, false),
};

const oneEndpoint: Scenario = {
  id: 'ONE',
  title: 'one endpoint, cap 10, 1 ms',
  what: '10,000 events for one endpoint with 10 slots whose receiver takes 1 ms; the bare loop has 10 connections too.',
  async run(bench) {
    await bench.receiver.set({ bare: { kind: 'ok', delayMs: 1 } });
    return only(
      drain(bench, {
        events: bench.count(10_000),
        tenants: 1,
        cap: 10,
        behaviour: { kind: 'ok', delayMs: 1 },
        bare: { connections: 10, count: bench.count(10_000) },
      }),
    );
  },
};

const never: Scenario = {
  id: 'NEVER',
  title: 'grouping never',
  what: '`POSTHASTE_GROUPING=never`: 1,000 waiting events, then 10/s through the API; each delivery is a workflow of its own.',
  async run(bench) {
    const env = { POSTHASTE_GROUPING: 'never' };
    const { figures } = await drain(bench, { events: bench.count(1_000), tenants: 100, env });
    const app = await bench.start('all', env);
    const tenants = await seedGroup(bench, 'steady', 20);
    const phase = await steady(bench, app, { rate: 10, seconds: bench.seconds(20), tenants });
    const latency = timings(phase.sent, await bench.receiver.received(), 'at_10_');
    await bench.stopPosthaste();
    return { figures: { ...figures, ...latency } };
  },
};

const workers: Scenario = {
  id: 'S11',
  title: 'two worker processes',
  what: '50,000 waiting events, sent by one relay and two worker processes.',
  run: (bench) =>
    only(drain(bench, { events: bench.count(50_000), tenants: 100, roles: ['relay', 'worker', 'worker'] })),
};

const history: Scenario = {
  id: 'S12',
  title: 'with 1,000,000 old deliveries',
  what: '20,000 waiting events on an empty database, and again after 1,000,000 delivered deliveries (with events, attempts and fan-outs) were laid down. `ratio_to_empty` is the second rate over the first.',
  async run(bench) {
    const empty = await drain(bench, { events: bench.count(20_000), tenants: 100, prefix: 'a' });
    const old = bench.count(1_000_000, 10_000);
    const full = await drain(bench, {
      events: bench.count(20_000),
      tenants: 100,
      prefix: 'b',
      before: (tenants) => seedHistory(bench.db, tenants, old),
    });
    return {
      figures: {
        ...full.figures,
        old_deliveries: old,
        empty_deliveries_per_s: empty.figures.deliveries_per_s!,
        empty_bare_per_s: empty.figures.bare_per_s!,
        ratio_to_empty: full.figures.deliveries_per_s! / empty.figures.deliveries_per_s!,
      },
    };
  },
};

export const hotScenarios = [backlog, large, fanOut, hotTls, coldTls, oneEndpoint, never, workers, history];
