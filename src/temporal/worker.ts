/**
 * The workers of a process: one for workflows and first attempts, one activity-only worker for each further lane.
 * Slots are fixed: an eager start needs a free one at once.
 */
import { type NativeConnection, Worker } from '@temporalio/worker';
import type { Log } from '../log.ts';
import { type Activities, LANE_QUEUES, type Lane } from '../workflows/contract.ts';
import { ensureWorkflowBundle } from './bundle.ts';

export interface WorkerSet {
  /** Every worker polls. */
  healthy(): boolean;
  /** Stops polling, lets activities end, then resolves. */
  shutdown(): Promise<void>;
}

export interface WorkerOptions {
  connection: NativeConnection;
  namespace: string;
  activities: Activities;
  lanes: readonly Lane[];
  log: Log;
}

/** A pump mostly waits; an endpoint in mode pump has one for up to a minute at a time. */
const SLOTS: Record<Lane, number> = { first: 200, retry: 100, held: 500, bulk: 50 };
/** Longer than the longest attempt (30 s) and its record. */
const GRACE_MS = 40_000;

/** Starts the workers and keeps them: one whose run ends by an error is made anew with backoff. */
export async function startWorkers(options: WorkerOptions): Promise<WorkerSet> {
  const codePath = options.lanes.includes('first') ? await ensureWorkflowBundle() : '';
  let stopping = false;
  const workers = new Map<Lane, Worker>();

  const create = (lane: Lane): Promise<Worker> =>
    Worker.create({
      connection: options.connection,
      namespace: options.namespace,
      taskQueue: LANE_QUEUES[lane],
      identity: `posthaste/${lane}/${process.pid}`,
      activities: options.activities,
      maxConcurrentActivityTaskExecutions: SLOTS[lane],
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: lane === 'first' ? 5 : 2 },
      shutdownGraceTime: GRACE_MS,
      shutdownForceTime: GRACE_MS + 10_000,
      ...(lane === 'first'
        ? {
            workflowBundle: { codePath },
            maxConcurrentWorkflowTaskExecutions: 100,
            workflowTaskPollerBehavior: { type: 'simple-maximum' as const, maximum: 5 },
            maxCachedWorkflows: 500,
            workflowThreadPoolSize: 1,
          }
        : {}),
    });

  const keep = async (lane: Lane, first: Worker): Promise<void> => {
    let worker: Worker | undefined = first;
    for (let wait = 500; ; wait = Math.min(10_000, wait * 2)) {
      try {
        worker ??= await create(lane);
        workers.set(lane, worker);
        if (stopping) return;
        await worker.run();
        if (stopping) return;
      } catch (error) {
        options.log.error({ err: error, lane }, 'a Temporal worker stopped; making a new one');
      }
      if (stopping) return;
      workers.delete(lane);
      worker = undefined;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  };

  const firsts = await Promise.all(options.lanes.map(async (lane) => [lane, await create(lane)] as const));
  const runs = firsts.map(([lane, worker]) => keep(lane, worker));
  return {
    healthy: () => options.lanes.every((lane) => workers.get(lane)?.getState() === 'RUNNING'),
    async shutdown() {
      stopping = true;
      for (const worker of workers.values()) {
        if (worker.getState() === 'RUNNING') worker.shutdown();
      }
      await Promise.all(runs);
    },
  };
}
