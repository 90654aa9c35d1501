/** Workflows as a user of Posthaste writes them: bundled by test/workflows/send-event.test.ts with posthaste/temporal. */
import { executeChild, proxyActivities } from '@temporalio/workflow';
import {
  SEND_EVENT_WORKFLOW,
  type SendEventActivities,
  type SendEventResult,
  type SendEventWorkflow,
  TASK_QUEUE,
} from '../../src/temporal-client/index.ts';

const { sendEvent } = proxyActivities<SendEventActivities>({
  startToCloseTimeout: '5m',
  heartbeatTimeout: '30s',
});

/** In Posthaste's own namespace: its workflow as a child. */
export function payByChild(tenant: string, order: string): Promise<SendEventResult> {
  return executeChild<SendEventWorkflow>(SEND_EVENT_WORKFLOW, {
    workflowId: `order-paid/${order}`,
    taskQueue: TASK_QUEUE,
    args: [{ tenant, type: 'order.paid', data: { order } }],
  });
}

/** Anywhere: the activity, run by the user's own worker. Two events, two calls. */
export async function payByActivity(tenant: string, order: string): Promise<SendEventResult[]> {
  return [
    await sendEvent({ tenant, type: 'order.paid', data: { order } }),
    await sendEvent({ tenant, type: 'order.shipped', data: { order }, id: `shipped-${order}` }),
  ];
}
