/**
 * endpoint/<id>: an endpoint that can't keep up, rests, or is paused (mode pump). It owns time: the cooldown before a
 * probe, the end of a pause; and it shows how the endpoint stands. Started by the scanner (src/relay/scanner.ts),
 * within a budget; an endpoint without one is looked after in groups and fares the same.
 *
 *   pump (activity) ──▶ mode shared: return
 *      ▲   └──▶ nothing to do before `lookAgainMs` (timer) ─┐
 *      └────────── wake, or time ◀──────────────────────────┘
 *
 * Rate, probes and the right to send are in PostgreSQL: running twice, late or again is harmless.
 */
import {
  ActivityCancellationType,
  CancellationScope,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  defineUpdate,
  isCancellation,
  log,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import {
  type Activities,
  type EndpointInput,
  type EndpointReport,
  type EndpointResult,
  LANE_QUEUES,
  PAUSE_UPDATE,
  REPLAY_SIGNAL,
  RESUME_UPDATE,
  type ReplayRange,
  STATE_QUERY,
  WAKE_SIGNAL,
} from './contract.ts';

const { pumpEndpoint } = proxyActivities<Activities>({
  taskQueue: LANE_QUEUES.held,
  startToCloseTimeout: '5m', // a run takes a minute and the longest request
  heartbeatTimeout: '60s',
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry: { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' },
});
const { pauseEndpoint, resumeEndpoint, disownEndpoint, replayEndpoint } = proxyActivities<Activities>({
  taskQueue: LANE_QUEUES.first,
  startToCloseTimeout: '30s',
  retry: { initialInterval: '1s', backoffCoefficient: 2, maximumInterval: '30s' },
});

const wakeSignal = defineSignal(WAKE_SIGNAL);
const replaySignal = defineSignal<[ReplayRange]>(REPLAY_SIGNAL);
const pauseUpdate = defineUpdate<{ state: string }>(PAUSE_UPDATE);
const resumeUpdate = defineUpdate<{ state: string }>(RESUME_UPDATE);
const stateQuery = defineQuery<EndpointReport | null>(STATE_QUERY);

/** A quarter of an hour: the longest sleep without a look at the row. */
const LOOK_MS = 15 * 60_000;
const MAX_EVENTS = 3_500;

export async function endpoint(input: EndpointInput): Promise<EndpointResult> {
  const { endpointId } = input;
  let wake = false;
  let operating = 0;
  let report: EndpointReport | null = input.report ?? null;
  const ranges: ReplayRange[] = [];

  const operate = async (act: typeof pauseEndpoint): Promise<{ state: string }> => {
    operating++;
    try {
      return await act({ endpointId });
    } finally {
      operating--;
      wake = true;
    }
  };
  setHandler(wakeSignal, () => {
    wake = true;
  });
  setHandler(replaySignal, (range) => {
    ranges.push(range);
    wake = true;
  });
  setHandler(pauseUpdate, () => operate(pauseEndpoint));
  setHandler(resumeUpdate, () => operate(resumeEndpoint));
  setHandler(stateQuery, () => report);

  try {
    for (;;) {
      wake = false;
      for (let range = ranges.shift(); range !== undefined; range = ranges.shift()) {
        try {
          await replayEndpoint({ endpointId, ...range });
        } catch (error) {
          // A range that can't be replayed (unknown or disabled endpoint, no time) is the sender's mistake, shown here.
          if (isCancellation(error)) throw error;
          log.warn('a replay could not be begun', { range, error });
        }
      }
      const summary = report === null ? 'look' : summaryOf(report);
      // A run finishes its requests even when this workflow is cancelled meanwhile.
      const latest: EndpointReport = await CancellationScope.nonCancellable(() =>
        pumpEndpoint.executeWithOptions({ summary }, [{ endpointId }]),
      );
      report = latest;
      show(latest);
      await condition(() => operating === 0);
      if (!wake && (latest.mode === 'shared' || latest.state === 'disabled' || latest.state === 'deleted')) {
        return { health: latest.health };
      }
      if (workflowInfo().historyLength > MAX_EVENTS && !wake) {
        await continueAsNew<typeof endpoint>({ endpointId, report: latest });
      }
      const ms = Math.min(LOOK_MS, (latest.lookAgainMs ?? Number.POSITIVE_INFINITY) - Date.now());
      if (ms > 0 && !wake) await condition(() => wake, ms, { summary: summaryOf(latest) });
    }
  } catch (error) {
    if (isCancellation(error)) {
      await CancellationScope.nonCancellable(() => disownEndpoint({ endpointId }));
    }
    throw error;
  }
}

function show(report: EndpointReport): void {
  const rows = [
    ['health', `**${report.health}** since ${report.since}`],
    ['state', report.state],
    ['mode', report.mode],
    ['next probe', report.nextProbeAt],
    ['paused until', report.pausedUntil],
    ['held', report.held >= 10_000 ? '10,000 or more' : String(report.held)],
    ['rate', report.rate === null ? 'its cap' : `${report.rate.toPrecision(3)} per second`],
    ['caught up', report.caughtUpAt],
  ].filter(([, value]) => value !== null);
  setCurrentDetails(`| | |\n|---|---|\n${rows.map(([name, value]) => `| ${name} | ${value} |`).join('\n')}`);
}

function summaryOf(report: EndpointReport): string {
  const held = `${report.held} held`;
  if (report.state !== 'active') return `${report.state} · ${held}`;
  if (report.pausedUntil !== null) return `resting until ${report.pausedUntil} · ${held}`;
  if (report.nextProbeAt !== null) return `probe at ${report.nextProbeAt} · ${report.health} · ${held}`;
  return `${report.health} · ${held}`;
}
