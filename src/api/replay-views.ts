/** Replays as the API shows them. */
import { z } from '@hono/zod-openapi';
import type { ReplayRow } from '../db/replays.ts';
import { replayEtaMs } from '../domain/replay-eta.ts';
import { STATES } from './delivery-views.ts';
import { timestamp } from './schemas.ts';

export const Replay = z
  .object({
    id: z.string(),
    action: z.enum(['resend', 'cancel']),
    source: z.enum(['delivery', 'deliveries', 'dead_letters']),
    filter: z
      .object({
        delivery: z.string(),
        endpoint: z.string(),
        event: z.string(),
        type: z.string(),
        states: z.array(z.enum(STATES)),
        status: z.int(),
        class: z.string(),
        since: timestamp,
        until: timestamp,
      })
      .partial()
      .openapi({
        description:
          'What it matches: what is absent does not matter. Nothing younger than the replay matches.',
      }),
    missed: z
      .boolean()
      .openapi({ description: 'Whether it also makes deliveries that the endpoint never got' }),
    rate: z.int(),
    state: z.enum(['running', 'done', 'cancelled', 'stopped']),
    reason: z.string().nullable().openapi({ description: 'Why it was stopped' }),
    total: z
      .int()
      .nullable()
      .openapi({ description: 'Matches at the beginning; null: not counted yet, or more than 100,000' }),
    moved: z.int().openapi({ description: 'Sent back to work, or cancelled' }),
    made: z.int().openapi({ description: 'Deliveries made for events that were missed' }),
    skipped: z.int().openapi({
      description: 'Matched, but being sent just then, or its endpoint is disabled or its event expired',
    }),
    waiting: z.boolean().openapi({ description: 'For room: enough of it is still unfinished' }),
    eta: timestamp
      .nullable()
      .openapi({ description: 'When everything will have been moved, at the pace so far' }),
    created_at: timestamp,
    updated_at: timestamp,
    finished_at: timestamp.nullable(),
  })
  .openapi('Replay');

export function replayView(row: ReplayRow, nowMs: number) {
  const eta = replayEtaMs(
    {
      running: row.state === 'running',
      total: row.total,
      done: row.moved + row.missed_made + row.skipped,
      rate: row.rate,
      createdAtMs: row.created_at.getTime(),
    },
    nowMs,
  );
  const filter = {
    delivery: row.delivery,
    endpoint: row.endpoint,
    event: row.event,
    type: row.event_type,
    states: row.states,
    status: row.last_status,
    class: row.last_class,
    since: row.since,
    until: row.until,
  };
  return {
    id: row.id,
    action: row.action,
    source: row.source,
    filter: Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== null)),
    missed: row.missed,
    rate: row.rate,
    state: row.state,
    reason: row.reason,
    total: row.total,
    moved: row.moved,
    made: row.missed_made,
    skipped: row.skipped,
    waiting: row.waiting,
    eta: eta === null ? null : new Date(eta),
    created_at: row.created_at,
    updated_at: row.updated_at,
    finished_at: row.finished_at,
  };
}
