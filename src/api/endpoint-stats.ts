/** How an endpoint has done of late and what waits for it: counted from rows, within bounds (src/db/stats.ts). */
import { z } from '@hono/zod-openapi';
import { getEndpoint } from '../db/endpoints.ts';
import { attemptStats, deadLetterCount, STATS_LIMIT, waitingStats } from '../db/stats.ts';
import { OUTCOME_CLASSES, type OutcomeClass } from '../domain/classes.ts';
import type { ApiDeps } from './deps.ts';
import { noEndpoint } from './missing.ts';
import { type BoundRoute, badParameter, bind, route } from './route.ts';
import { time, timestamp } from './schemas.ts';

const DAY_MS = 24 * 3_600_000;
const LONGEST_MS = 7 * DAY_MS;

const Stats = z
  .object({
    since: timestamp.openapi({ description: 'Attempts from then on are counted' }),
    until: timestamp,
    attempts: z.int().openapi({ description: 'Attempts that began in the range, test sends included' }),
    complete: z.boolean().openapi({
      description: `false: the range has more than ${STATS_LIMIT} attempts; the newest are counted and \`since\` says how far they reach`,
    }),
    by_class: z.record(z.string(), z.int()),
    success_rate: z.number().nullable().openapi({
      description: '0 to 1, of the attempts that reached for the endpoint; null: there were none',
    }),
    duration_ms: z.object({ p50: z.number().nullable(), p95: z.number().nullable() }),
    last_success_at: timestamp.nullable(),
    seconds_since_success: z.number().nullable(),
    waiting: z
      .object({
        ready: z.int(),
        sending: z.int(),
        retrying: z.int(),
        held: z.int(),
        oldest_at: timestamp.nullable().openapi({ description: 'When the oldest of them was accepted' }),
      })
      .openapi({ description: `Unfinished deliveries by state, counted to ${STATS_LIMIT}` }),
    dead_letters: z
      .int()
      .openapi({ description: `That died in the range asked for, counted to ${STATS_LIMIT}` }),
  })
  .openapi('EndpointStats');

export const statsSpecs = {
  stats: route({
    tag: 'Endpoints',
    method: 'get',
    path: '/v1/tenants/{tenant}/endpoints/{endpoint}/stats',
    id: 'getEndpointStats',
    summary: 'Show how an endpoint has done of late',
    query: z.strictObject({
      since: time.optional().openapi({
        type: 'string',
        format: 'date-time',
        description: 'At most 7 days ago; default: 24 hours ago',
      }),
    }),
    status: 200,
    answer: 'Figures of the range',
    schema: Stats,
  }),
};

export function statsRoutes(deps: ApiDeps): BoundRoute[] {
  const { db } = deps;
  return [
    bind(statsSpecs.stats, async ({ param, query }) => {
      const until = new Date();
      const since = query.since ?? new Date(until.getTime() - DAY_MS);
      // A minute more: "7 days ago" was computed a moment earlier, by another clock.
      if (until.getTime() - since.getTime() > LONGEST_MS + 60_000)
        throw badParameter('since', 'must be at most 7 days ago');
      if (since > until) throw badParameter('since', 'must be in the past');
      const endpoint = (await getEndpoint(db, param('tenant'), param('endpoint'))) ?? noEndpoint();
      const [attempts, waiting, dead] = await Promise.all([
        attemptStats(db, endpoint.id, since, until),
        waitingStats(db, endpoint.id),
        deadLetterCount(db, endpoint.id, since),
      ]);
      const complete = attempts.total < STATS_LIMIT;
      const success = endpoint.last_success_at;
      const { oldest, ...states } = waiting;
      return {
        status: 200,
        json: {
          since: complete ? since : attempts.oldest,
          until,
          attempts: attempts.total,
          complete,
          by_class: attempts.by_class,
          success_rate: successRate(attempts.by_class),
          duration_ms: { p50: attempts.p50, p95: attempts.p95 },
          last_success_at: success,
          seconds_since_success:
            success === null ? null : Math.max(0, (until.getTime() - success.getTime()) / 1_000),
          waiting: { ...states, oldest_at: oldest },
          dead_letters: dead,
        },
      };
    }),
  ];
}

/** Faults of ours say nothing about the endpoint. */
export function successRate(byClass: Readonly<Record<string, number>>): number | null {
  let all = 0;
  for (const [name, count] of Object.entries(byClass))
    if (OUTCOME_CLASSES[name as OutcomeClass]?.burnsAttempt !== false) all += count;
  return all === 0 ? null : (byClass.ok ?? 0) / all;
}
