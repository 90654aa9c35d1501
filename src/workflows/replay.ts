/**
 * replay/<id>: sends again what failed, at a pace. Started by the scanner (src/relay/replays.ts) for replays made
 * through the API, by the endpoint's workflow, or by anyone with a Temporal client.
 *
 *   begin (unless the row exists) ──▶ page ──▶ wait ──▶ page … ──▶ done, cancelled, stopped
 *
 * The row in PostgreSQL has the cursor, the pace and the counts (docs/adr/0004-replay.md): running twice, late or again
 * repeats nothing. Cancelling this workflow cancels the replay; terminating it does not, the scanner starts it again.
 */
import {
  CancellationScope,
  condition,
  continueAsNew,
  defineQuery,
  defineUpdate,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import {
  type Activities,
  CANCEL_UPDATE,
  LANE_QUEUES,
  PROGRESS_QUERY,
  type ReplayInput,
  type ReplayProgress,
} from './contract.ts';

// PostgreSQL is the only thing these fail for, but for a replay that can't be begun, which is not retried.
const RETRY = { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' } as const;
const short = proxyActivities<Activities>({ startToCloseTimeout: '30s', retry: RETRY });
const paging = proxyActivities<Activities>({
  taskQueue: LANE_QUEUES.bulk,
  startToCloseTimeout: '3m',
  heartbeatTimeout: '60s',
  retry: RETRY,
});

const progressQuery = defineQuery<ReplayProgress>(PROGRESS_QUERY);
const cancelUpdate = defineUpdate<ReplayProgress>(CANCEL_UPDATE);

export async function replay(input: ReplayInput): Promise<ReplayProgress> {
  let replayId = 'replayId' in input ? input.replayId : null;
  let begun = replayId !== null;
  let over = false;
  let operating = 0;
  let progress: ReplayProgress = {
    replayId,
    state: 'running',
    total: null,
    moved: 0,
    missed: 0,
    skipped: 0,
    waiting: false,
    eta: null,
    reason: null,
  };
  const take = (latest: ReplayProgress): ReplayProgress => {
    // A page that was under way when the replay was cancelled does not bring it back.
    if (!over) progress = latest;
    over ||= latest.state !== 'running';
    setCurrentDetails(describe(progress));
    return progress;
  };
  const cancel = async (): Promise<ReplayProgress> => {
    operating++;
    try {
      await condition(() => begun);
      return take(await short.cancelReplay({ replayId: replayId! }));
    } finally {
      operating--;
    }
  };
  setHandler(progressQuery, () => progress);
  setHandler(cancelUpdate, cancel);

  try {
    if (!('replayId' in input)) {
      const { workflowId, firstExecutionRunId } = workflowInfo();
      const key = `${workflowId}/${firstExecutionRunId}`;
      // Cancelled meanwhile: what was begun must be known to be cancelled.
      ({ replayId } = await CancellationScope.nonCancellable(() => short.beginReplay({ ...input, key })));
      begun = true;
      progress = { ...progress, replayId };
    }
    while (!over) {
      const { waitMs, ...latest } = await paging.pageReplay.executeWithOptions(
        { summary: `page on from ${progress.moved + progress.missed}` },
        [{ replayId: replayId! }],
      );
      take(latest);
      if (over) break;
      if (workflowInfo().historyLength > 3_000) {
        await condition(() => operating === 0);
        if (!over) await continueAsNew<typeof replay>({ replayId: replayId! });
      }
      const summary = latest.waiting ? 'until there is room for more' : 'next page';
      if (waitMs > 0) await condition(() => over, waitMs, { summary });
    }
  } catch (error) {
    if (isCancellation(error) && begun) await CancellationScope.nonCancellable(cancel);
    throw error;
  }
  await condition(() => operating === 0);
  return progress;
}

function describe(progress: ReplayProgress): string {
  const { state, total, moved, missed, skipped, waiting, eta, reason } = progress;
  const of = total === null ? '' : ` of ${total}`;
  const lines = [
    `**${state}**${reason === null ? '' : ` (${reason})`}: ${moved + missed + skipped}${of}`,
    `${moved} moved, ${missed} missed ones made, ${skipped} skipped`,
  ];
  if (waiting) lines.push('waiting: enough of it is still unfinished');
  if (eta !== null) lines.push(`all moved at about ${eta}`);
  return lines.join('\n\n');
}
