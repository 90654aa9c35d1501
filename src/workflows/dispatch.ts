/**
 * dispatch/<id>: one group of deliveries, worked through by one activity. Started by the relay when more is ready
 * than single workflows may be started for, and by the scanner for rows that wait without a workflow. The members
 * are rows of `work` that name this dispatch; a member that fails gets a workflow or waits as a row.
 */
import {
  ActivityCancellationType,
  ActivityFailure,
  CancellationScope,
  defineQuery,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  TimeoutFailure,
} from '@temporalio/workflow';
import {
  type Activities,
  type DispatchInput,
  type DispatchResult,
  LANE_QUEUES,
  PROGRESS_QUERY,
} from './contract.ts';

// The group's lease on life is in PostgreSQL (dispatches.alive_until): when its worker dies, the scanner makes a new
// group of what is left, long before Temporal tries this activity again and finds nothing to do.
const OPTIONS = {
  startToCloseTimeout: '30m',
  // Not begun for so long: the scanner has put the members into other groups. A queue of stale groups must not build up
  // before workers that come back.
  scheduleToStartTimeout: '90s',
  heartbeatTimeout: '60s',
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry: { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' },
} as const;

const proxies = {
  first: proxyActivities<Activities>({ ...OPTIONS, taskQueue: LANE_QUEUES.first }),
  retry: proxyActivities<Activities>({ ...OPTIONS, taskQueue: LANE_QUEUES.retry }),
  held: proxyActivities<Activities>({ ...OPTIONS, taskQueue: LANE_QUEUES.held }),
  bulk: proxyActivities<Activities>({ ...OPTIONS, taskQueue: LANE_QUEUES.bulk }),
};

const progressQuery = defineQuery<DispatchResult | null>(PROGRESS_QUERY);

export async function dispatch(input: DispatchInput): Promise<DispatchResult> {
  let result: DispatchResult | null = null;
  setHandler(progressQuery, () => result);
  const { dispatchId } = input;
  try {
    result = await CancellationScope.nonCancellable(() =>
      proxies[input.lane ?? 'first'].attemptDispatch({ dispatchId }),
    );
  } catch (error) {
    if (!(error instanceof ActivityFailure) || !(error.cause instanceof TimeoutFailure)) throw error;
    result = { delivered: 0, failed: 0, left: 0 };
  }
  setCurrentDetails(`${result.delivered} delivered, ${result.failed} failed, ${result.left} left for later`);
  return result;
}
