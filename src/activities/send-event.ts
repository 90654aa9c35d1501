/**
 * sendEvent: puts an event in and waits until its deliveries exist. Called by src/workflows/send-event.ts, and by the
 * activity that users run in workers of their own (src/temporal-client/activity.ts).
 */
import { createHash } from 'node:crypto';
import { Context, type Info } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import { findEventTime } from '../db/events.ts';
import { notify } from '../db/notify.ts';
import type { Pool } from '../db/pool.ts';
import { enqueueEvent, fannedOut } from '../db/send-event.ts';
import { idTimeMs } from '../domain/ids.ts';
import { REFUSED, type SendEventInput } from '../workflows/contract.ts';
import { sleep } from './sleep.ts';

export type InlineEvent = Extract<SendEventInput, { type: string }>;

/** Where events go in: the database, or the API. */
export interface EventSource {
  /** Safe to repeat. Fails for good, by a type of REFUSED, when the event can't be accepted. */
  insert(event: InlineEvent, id: string, json: string): Promise<void>;
  /** null: not fanned out yet; undefined: there is no such event. */
  deliveries(tenant: string, event: string): Promise<string[] | null | undefined>;
  pollMs: number;
}

/** How long it waits for fan-out before the workflow sleeps instead: an activity holds a slot. */
const ROUND_MS = 10_000;

export function sendEvent(deps: { db: Pool }, input: SendEventInput) {
  return sendEventThrough(databaseSource(deps.db), input, { roundMs: ROUND_MS, idOf: perWorkflow });
}

/** `roundMs`: deliveries are null when they don't exist after that. `idOf`: what an id is made from when none is given. */
export async function sendEventThrough(
  source: EventSource,
  input: SendEventInput,
  options: { roundMs: number; idOf: (info: Info) => string },
): Promise<{ event: string; deliveries: string[] | null }> {
  const context = Context.current();
  const event = 'eventId' in input ? input.eventId : (input.id ?? idFrom(options.idOf(context.info)));
  if (!('eventId' in input)) {
    const json = JSON.stringify(input.data);
    if (json === undefined)
      throw refused(REFUSED.invalidInput, 'data is missing; null is a value, undefined is none');
    await source.insert(input, event, json);
  }
  const began = performance.now();
  for (;;) {
    const deliveries = await source.deliveries(input.tenant, event);
    if (deliveries) return { event, deliveries };
    const late = performance.now() - began;
    // Given by id, it may be in a transaction that commits just now.
    if (deliveries === undefined && late > ROUND_MS)
      throw refused(
        REFUSED.eventNotFound,
        `tenant ${input.tenant} has no event ${event}; commit it before this is called`,
      );
    if (deliveries === null && late > options.roundMs) return { event, deliveries: null };
    context.heartbeat();
    await sleep(source.pollMs, context.cancellationSignal);
    context.cancellationSignal.throwIfAborted();
  }
}

/** One workflow id, one event: run again with the same content it changes nothing, with other content it is refused. */
const perWorkflow = ({ namespace, workflowExecution }: Info): string =>
  `${namespace}/${workflowExecution?.workflowId}`;

/** One call, one event, however often the activity is tried. A workflow may send many. */
export const perCall = ({ namespace, workflowExecution, activityId }: Info): string =>
  `${namespace}/${workflowExecution?.workflowId}/${workflowExecution?.runId}/${activityId}`;

const idFrom = (name: string): string => `wf-${createHash('sha256').update(name).digest('hex').slice(0, 40)}`;

export function databaseSource(db: Pool): EventSource {
  return {
    pollMs: 50,
    async insert(event, id, json) {
      try {
        await enqueueEvent(db, {
          tenant: event.tenant,
          type: event.type,
          json,
          id,
          version: event.version === undefined ? null : String(event.version),
          timestamp: event.timestamp ?? null,
        });
      } catch (error) {
        throw translated(error);
      }
      await notify(db, 'events').catch(() => {}); // a hint; relays poll
    },
    async deliveries(tenant, event) {
      const ms = idTimeMs(event);
      const at = await findEventTime(db, tenant, event, ms === null ? null : new Date(ms));
      return at === null ? undefined : fannedOut(db, tenant, event, at);
    },
  };
}

/** What the database refuses for good; anything else is tried again. */
function translated(error: unknown): unknown {
  const { code, message, hint } = error as { code?: string; message: string; hint?: string };
  const text = hint === undefined ? message : `${message}. ${hint}`;
  if (code === 'PHTEN') return refused(REFUSED.tenantNotFound, text);
  if (code === 'PHDUP') return refused(REFUSED.eventConflict, text);
  if (/^(PH|22)/.test(code ?? '')) return refused(REFUSED.invalidInput, text);
  return error;
}

export function refused(type: string, message: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, type);
}
