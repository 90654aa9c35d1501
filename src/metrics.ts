/** Every metric of a process: names, labels, buckets. Scraped at /metrics. Temporal's own come from its runtime. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';

export interface Metrics {
  attempts: Counter<'class'>;
  attemptSeconds: Histogram;
  recordWaiting: Gauge;
  startRate: Gauge;
  living: Gauge;
  waitingEvents: Gauge;
  outboxAgeSeconds: Gauge;
  unfinished: Gauge;
  withoutWorkflow: Gauge;
  inFlight: Gauge;
  eventLoopLagSeconds: Gauge;
  endpoints: Gauge<'health'>;
  held: Gauge;
  edges: Counter<'edge' | 'by'>;
  sendingFrozen: Gauge;
  text(): Promise<string>;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const gauge = (name: string, help: string): Gauge =>
    new Gauge({ name: `posthaste_${name}`, help, registers });
  return {
    attempts: new Counter({
      name: 'posthaste_attempts_total',
      help: 'Attempts recorded, by class (docs/failures.md).',
      labelNames: ['class'],
      registers,
    }),
    attemptSeconds: new Histogram({
      name: 'posthaste_attempt_seconds',
      help: 'Time of one attempt, from the start of the request to its answer.',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30],
      registers,
    }),
    recordWaiting: gauge('record_waiting', 'Answered attempts not yet written to PostgreSQL.'),
    startRate: gauge('start_rate', 'Workflow starts per second that Temporal takes now, as measured.'),
    living: gauge('living_workflows', 'Unfinished deliveries with a workflow of their own.'),
    waitingEvents: gauge(
      'outbox_waiting_events',
      'Events seen in the outbox and not yet fanned out, of the shards held.',
    ),
    outboxAgeSeconds: gauge(
      'outbox_age_seconds',
      'Age of the oldest event in the outbox, of the shards held.',
    ),
    unfinished: gauge(
      'first_attempts_unfinished',
      'Deliveries fanned out whose first attempt is not made yet.',
    ),
    withoutWorkflow: gauge(
      'rows_without_workflow',
      'Unfinished deliveries that wait as rows, without a workflow of their own.',
    ),
    inFlight: gauge('requests_in_flight', 'Requests to receivers under way.'),
    eventLoopLagSeconds: gauge('event_loop_lag_seconds', 'How late timers of this process run.'),
    endpoints: new Gauge({
      name: 'posthaste_endpoints',
      help: 'Endpoints that are not disabled, by health, of the shards held; `paused`: by an operator.',
      labelNames: ['health'],
      registers,
    }),
    held: gauge('held_deliveries', 'Deliveries that wait for their endpoint, of the shards held.'),
    edges: new Counter({
      name: 'posthaste_endpoint_edges_total',
      help: 'Changes of endpoints, by kind (docs/endpoint-health.md) and by whom: `health`, or an `operator`.',
      labelNames: ['edge', 'by'],
      registers,
    }),
    sendingFrozen: gauge(
      'sending_frozen',
      '1 while many endpoints fail and so does our own check: breakers do not trip. It is us.',
    ),
    text: () => registry.metrics(),
  };
}
