/**
 * The shape that many scenarios share: events wait in the outbox when Posthaste starts, and it sends them as fast as
 * it can. The rate counts from the first to the last 2xx at the receiver; the bare loop runs before and after.
 */
import type { BareOptions } from '../lib/bare.ts';
import type { Bench } from '../lib/bench.ts';
import type { PosthasteOptions } from '../lib/posthaste.ts';
import type { Behaviour } from '../lib/receiver.ts';
import { type Received, type Reconciled, reconcile, type Sent } from '../lib/reconcile.ts';
import { type EndpointSeed, enqueue, seedEndpoints } from '../lib/seed.ts';
import type { Figures } from '../lib/types.ts';

export interface Drain {
  events: number;
  tenants: number;
  /** Endpoints of each tenant: deliveries per event. */
  fanOut?: number;
  bytes?: number;
  cap?: number;
  behaviour?: Behaviour;
  roles?: PosthasteOptions['role'][];
  env?: Record<string, string>;
  bare?: Partial<BareOptions>;
  /** The endpoint's URL; default: plain HTTP on one port. */
  url?: (tenant: number, endpoint: number) => string;
  timeoutMs?: number;
  /** Rows to lay down before, and the like. */
  before?: (tenants: string[]) => Promise<void>;
  /** Names this drain's tenants; for a second one on the same database. */
  prefix?: string;
}

export interface Drained {
  figures: Figures;
  reconciled: Reconciled;
  received: Received[];
  sent: Sent[];
}

export async function drain(bench: Bench, what: Drain): Promise<Drained> {
  const { fanOut = 1, bytes = 1_000, timeoutMs = 300_000 } = what;
  const tenants = bench.names(what.prefix ?? 't', what.tenants);
  const seeds: EndpointSeed[] = tenants.flatMap((tenant, t) =>
    Array.from({ length: fanOut }, (_, e) => ({
      tenant,
      url: what.url?.(t, e) ?? bench.receiver.url('drain', t * fanOut + e),
      ...(what.cap === undefined ? {} : { cap: what.cap }),
    })),
  );
  await seedEndpoints(bench.db, seeds);
  await what.before?.(tenants);
  const made = await enqueue(bench.db, { tenants, count: what.events, bytes });
  await bench.temporal.settled();
  const before = await bench.bare({ bytes, ...what.bare });
  await bench.receiver.set({ drain: what.behaviour ?? { kind: 'ok' } });
  const { delivered: already } = await bench.receiver.counts();
  const expected = what.events * fanOut;
  const counted = await bench.snapshot();
  for (const role of what.roles ?? ['all']) await bench.start(role, what.env);
  // Statements and the like count from before the start, CPU from when the processes are up.
  const { posthaste, postgres, temporal, receiver, publisher } = await bench.snapshot();
  const from = { ...counted, posthaste, postgres, temporal, receiver, publisher };
  await bench.receiver.reached(already + expected, timeoutMs);
  await bench.quiet(120_000);
  const to = await bench.snapshot();
  const received = await bench.receiver.received();
  const sent: Sent[] = made.map(({ id, tenant }) => ({ id, tenant, at: null }));
  const reconciled = reconcile(sent, received, fanOut);
  bench.window = { from: reconciled.firstAt, to: reconciled.lastAt };
  const seconds = (reconciled.lastAt - reconciled.firstAt) / 1_000;
  const totals = await bench.totals(reconciled.delivered);
  await bench.stopPosthaste();
  const after = await bench.bare({ bytes, ...what.bare });
  const bare = (before.perSecond + after.perSecond) / 2;
  const rate = reconciled.delivered / seconds;
  return {
    received,
    sent,
    reconciled,
    figures: {
      deliveries_per_s: rate,
      bare_per_s: bare,
      ratio: rate / bare,
      bare_cpu_us: (before.cpuUs + after.cpuUs) / 2,
      lost: reconciled.lost,
      duplicates: reconciled.duplicates,
      ...bench.costs(from, to, reconciled.delivered),
      ...totals,
    },
  };
}
