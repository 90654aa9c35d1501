/**
 * The health step: what recording calls and operators said of endpoints → the pure reducer → gates that claims read.
 * At most ten steps a second per process, each for all endpoints with news in the shards this process holds. State is
 * written with compare-and-swap; whoever loses a race reduces again from the inbox, which nothing leaves before that.
 */
import { type AppliedHealth, applyHealth, type DueHealth, healthDue } from '../db/health.ts';
import { isUnreachable, type Pool } from '../db/pool.ts';
import {
  type Edge,
  type EdgeKind,
  type Fact,
  type Gate,
  parseHealthState,
  reduceHealth,
  type Seen,
} from '../domain/health.ts';
import type { Log } from '../log.ts';
import type { Leases } from './leases.ts';

export interface HealthOptions {
  db: Pool;
  leases: Leases;
  log: Log;
  /** Deliveries or pumps may be due: the scanner should look. */
  scan: () => void;
  /** Endpoints were disabled: their deliveries end. */
  endWorkOf: (endpoints: readonly string[]) => Promise<void>;
  /** An edge was written, or a step has used what an operator did: once each, whoever it was told to. */
  onEdge: (kind: EdgeKind | OperatorEdge, by: 'health' | 'operator') => void;
  /** True while what fails is us: trips wait. */
  isItUs: (failing: readonly DueHealth[]) => Promise<boolean>;
}

export interface Health {
  run(): Promise<void>;
  /** There is news: look soon. */
  poke(): void;
  stop(): Promise<void>;
}

const EVERY_MS = 1_000;
const SPACING_MS = 100;
const LIMIT = 2_000;

/** A receiver's wish to rest ends with these. */
const CLEARS_PAUSE = new Set<Fact['edit']>(['resume', 'enable', 'edit']);

/** What operators do, through the API or Temporal, comes as facts (migrations/functions/endpoints.sql). */
const OPERATOR_EDGES = {
  pause: 'paused',
  resume: 'resumed',
  enable: 'enabled',
  disable: 'disabled',
} as const;
type OperatorEdge = (typeof OPERATOR_EDGES)[keyof typeof OPERATOR_EDGES];

function operatorEdges(row: DueHealth): OperatorEdge[] {
  const edits = row.facts.map((fact) => (fact as { edit?: unknown }).edit as keyof typeof OPERATOR_EDGES);
  return edits.map((edit) => OPERATOR_EDGES[edit]).filter((edge) => edge !== undefined);
}

/** What endpoint_health.state holds. */
interface Memory {
  health: unknown;
  gate: Gate | null;
}

export function createHealth(options: HealthOptions): Health {
  const { db, leases, log } = options;
  let stopping = false;
  let pending = false;
  let wake: () => void = () => {};

  /** True when there is more news than one step takes. */
  const step = async (): Promise<boolean> => {
    const shards = leases.held().map((lease) => lease.shard);
    if (shards.length === 0 || !leases.valid()) return false;
    const due = await healthDue(db, shards, LIMIT);
    const frozen = await options.isItUs(due); // also without news: a freeze ends when it is quiet
    if (due.length === 0) return false;
    const steps = due.map((row) => decideSafely(row, frozen));
    const stood = await applyHealth(db, steps);
    const disabled = stood.filter((row) => row.disabled).map((row) => row.endpoint);
    const written = new Set(stood.map((row) => row.endpoint));
    for (const [i, { endpoint, edges, health }] of steps.entries()) {
      if (!written.has(endpoint)) continue; // decided again in the next step
      for (const edge of operatorEdges(due[i]!)) options.onEdge(edge, 'operator');
      for (const edge of edges) {
        log.info({ endpoint, health, ...(edge as Edge) }, 'endpoint health');
        options.onEdge((edge as Edge).kind, 'health');
      }
    }
    if (disabled.length > 0) await options.endWorkOf(disabled);
    if (due.some((row, i) => callsForScan(row, steps[i]!))) options.scan();
    return due[0]!.more || stood.length < due.length;
  };

  /** One endpoint whose memory is damaged must not stop the others: it starts anew as a healthy one. */
  const decideSafely = (row: DueHealth, frozen: boolean): AppliedHealth => {
    try {
      return decide(row, frozen);
    } catch (error) {
      log.error(
        { err: error, endpoint: row.endpoint },
        'the health of an endpoint could not be judged; it is forgotten',
      );
      return decide({ ...row, memory: null, facts: [] }, frozen);
    }
  };

  let running: Promise<void> = Promise.resolve();
  const loop = async (): Promise<void> => {
    while (!stopping) {
      let more = false;
      pending = false;
      const began = performance.now();
      try {
        more = await step();
      } catch (error) {
        if (isUnreachable(error)) log.warn({ err: error }, 'PostgreSQL is away; the health step tries again');
        else log.error({ err: error }, 'a health step failed; trying again');
      }
      if (stopping) return;
      const spacing = Math.max(0, SPACING_MS - (performance.now() - began));
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, more || pending ? spacing : EVERY_MS);
        function done(): void {
          clearTimeout(timer);
          resolve();
        }
        wake = () => {
          clearTimeout(timer);
          setTimeout(done, stopping ? 0 : spacing);
        };
      });
    }
  };

  return {
    run() {
      running = loop();
      return running;
    },
    poke() {
      pending = true;
      wake();
    },
    async stop() {
      stopping = true;
      wake();
      await running;
    },
  };
}

/** Somebody may have to send now who would not by himself: a pump is needed, a probe is due, an operator spoke. */
function callsForScan(row: DueHealth, step: AppliedHealth): boolean {
  return (
    (step.pump && row.mode === 'shared') ||
    (step.set_probe && step.probe_at !== null && Date.parse(step.probe_at) <= row.now_ms) ||
    (step.probe_at === null && row.health !== step.health) ||
    row.facts.some((fact) => typeof (fact as { edit?: unknown }).edit === 'string')
  );
}

/** One endpoint: rows → reducer → row. Exported for tests. */
export function decide(row: DueHealth, frozen: boolean): AppliedHealth {
  const memory = (row.memory ?? { health: null, gate: null }) as Memory;
  const facts = row.facts.map((fact) => factOf(fact as Record<string, unknown>, row.revision));
  const seen: Seen = {
    endpoint: row.endpoint,
    nowMs: row.now_ms, // the database's: this process's clock may be off
    epoch: row.epoch,
    mode: row.mode,
    oks: row.oks,
    sendRate: row.send_rate,
    recentRate: row.recent_rate,
    arrivalRate: row.arrival_rate,
    lastSuccessAtMs: row.last_success_at?.getTime() ?? null,
    operator: row.operator === 'deleted' ? 'disabled' : row.operator,
    cap: row.cap,
    timeoutMs: row.timeout_ms,
    pauseUntilMs: row.pause_until instanceof Date ? row.pause_until.getTime() : null,
    held: row.held,
    failsInRow: row.fails_in_row,
  };
  const next = reduceHealth(parseHealthState(memory.health), seen, facts, { frozen });
  const { gate } = next;
  const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
  // A granted probe has moved probe_at to infinity; only a new decision moves it back.
  const probeChanged = memory.gate === null || memory.gate.probeAtMs !== gate.probeAtMs;
  return {
    endpoint: row.endpoint,
    version: row.version,
    memory: { health: next.state, gate } satisfies Memory,
    wake_at: iso(next.wakeAtMs),
    ids: row.ids,
    epoch: row.epoch,
    health: next.state.health,
    pump: gate.mode === 'pump',
    set_probe: probeChanged,
    probe_at: iso(gate.probeAtMs),
    rate: gate.rate,
    pause_until: iso(gate.pauseUntilMs),
    clear_pause: facts.some((fact) => CLEARS_PAUSE.has(fact.edit)),
    keep_pump_until: iso(gate.keepPumpUntilMs),
    live_since: iso(gate.liveSinceMs),
    reset_fails: gate.resetFailsInRow,
    reset_tokens: gate.resetTokens,
    disable: next.disable,
    edges: next.edges.map((edge) =>
      edge.kind === 'disabled' ? { ...edge, disabledReason: next.disable } : edge,
    ),
  };
}

function factOf(fact: Record<string, unknown>, revision: number): Fact {
  const number = (name: string): number => (typeof fact[name] === 'number' ? (fact[name] as number) : 0);
  return {
    atMs: number('atMs'),
    epoch: number('epoch'),
    startedMs: number('startedMs'),
    ...(typeof fact.okStartedMs === 'number' ? { okStartedMs: fact.okStartedMs } : {}),
    ...(fact.testOk === true ? { testOk: true } : {}),
    ok: number('ok'),
    fail: number('fail'),
    timeouts: number('timeouts'),
    throttled: number('throttled'),
    config: number('config'),
    neutral: number('neutral'),
    slow: number('slow'),
    lost: number('lost'),
    deliveries: Array.isArray(fact.deliveries) ? (fact.deliveries as string[]) : [],
    lastStatus: typeof fact.lastStatus === 'number' ? fact.lastStatus : null,
    lastClass: typeof fact.lastClass === 'string' ? fact.lastClass : '',
    pauseUntilMs: typeof fact.pauseUntilMs === 'number' ? fact.pauseUntilMs : null,
    // An endpoint that was edited since the request may be another receiver by now.
    gone: fact.goneRevision === revision,
    edit: typeof fact.edit === 'string' ? (fact.edit as Fact['edit']) : null,
  };
}
