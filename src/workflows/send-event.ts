/**
 * sendEvent: an event from Temporal's side. A child of a user's workflow, or started by a client. Result: the deliveries
 * that were made; each goes its own way from there (delivery/<id>, or a group).
 */
import { condition, continueAsNew, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { Activities, SendEventInput, SendEventResult } from './contract.ts';

const { sendEvent: insertAndWait } = proxyActivities<Activities>({
  startToCloseTimeout: '2m',
  heartbeatTimeout: '30s',
  retry: { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' },
});

/** How long it sleeps while the event waits for its turn in the outbox. */
const LATER_MS = 30_000;

export async function sendEvent(input: SendEventInput): Promise<SendEventResult> {
  let next = input;
  for (;;) {
    const { event, deliveries } = await insertAndWait(next);
    if (deliveries !== null) return { event, deliveries };
    next = { tenant: input.tenant, eventId: event };
    await condition(() => false, LATER_MS, { summary: 'the event waits for its turn' });
    if (workflowInfo().historyLength > 3_000) await continueAsNew<typeof sendEvent>(next);
  }
}
