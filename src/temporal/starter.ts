/**
 * Starts and wakes workflows. Called by the relay, the scanner, the activities and (for hints) the API. Starting
 * twice is harmless: the claim decides who sends. A failed start is no loss either: the scanner finds the row.
 */
import { Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client';
import {
  defineSearchAttributeKey,
  type SearchAttributePair,
  SearchAttributeType,
  TypedSearchAttributes,
} from '@temporalio/common';
import type { NativeConnection } from '@temporalio/worker';
import type { Log } from '../log.ts';
import {
  DELIVERY_WORKFLOW,
  type DeliveryInput,
  DISPATCH_WORKFLOW,
  type DispatchInput,
  deliveryWorkflowId,
  dispatchWorkflowId,
  ENDPOINT_WORKFLOW,
  type EndpointInput,
  endpointWorkflowId,
  type Lane,
  REPLAY_WORKFLOW,
  type ReplayInput,
  replayWorkflowId,
  SEARCH_ATTRIBUTES,
  TASK_QUEUE,
  WAKE_SIGNAL,
} from '../workflows/contract.ts';
import { createStartBudget, type StartBudget } from './budget.ts';

export interface DeliveryNames {
  delivery: string;
  tenant: string;
  endpoint: string;
  event: string;
  event_type: string;
}

export interface Starter {
  budget: StartBudget;
  /** First attempts begin in this process: it sees them begin. Otherwise whoever started them must look. */
  seesAttempts: boolean;
  /** Starts whose first attempt has not been seen to begin. */
  outstanding(): number;
  /** Temporal answered lately; while false, callers leave work where it is. */
  available(): boolean;
  startDelivery(names: DeliveryNames, input: Omit<DeliveryInput, 'deliveryId'>): Promise<boolean>;
  /** @param members 0: there is no such group, or they are not known; it takes those that join. */
  startDispatch(dispatch: string, lane: Lane, members: number): Promise<boolean>;
  /** Starts the workflow that pages a replay; one that runs is left alone. */
  startReplay(replay: string, tenant: string): Promise<boolean>;
  /** Tells a delivery's workflow, if there is one, that its row has changed. A hint: never fails. */
  wakeIfRunning(delivery: string): Promise<void>;
  /** The same by workflow id. */
  wakeWorkflow(workflowId: string): Promise<void>;
  /** Signals a sleeping delivery, starting it when it does not run. */
  wakeDelivery(names: DeliveryNames, generation: number): Promise<boolean>;
  /** Starts the workflow of an endpoint in mode pump, or tells a living one to look. */
  wakeEndpoint(endpoint: string, tenant: string): Promise<boolean>;
  /** The first attempt of a started workflow begins, or was seen to have begun: measures the start latency. */
  began(workflowId: string): void;
}

const START_DEADLINE_MS = 10_000;
const OUTSTANDING_MS = 5_000;
const keys = {
  tenant: defineSearchAttributeKey(SEARCH_ATTRIBUTES.tenant, SearchAttributeType.KEYWORD),
  endpoint: defineSearchAttributeKey(SEARCH_ATTRIBUTES.endpoint, SearchAttributeType.KEYWORD),
  eventType: defineSearchAttributeKey(SEARCH_ATTRIBUTES.eventType, SearchAttributeType.KEYWORD),
  state: defineSearchAttributeKey(SEARCH_ATTRIBUTES.state, SearchAttributeType.KEYWORD),
  attempt: defineSearchAttributeKey(SEARCH_ATTRIBUTES.attempt, SearchAttributeType.INT),
};

export interface StarterDeps {
  connection: NativeConnection;
  namespace: string;
  log: Log;
  /** A worker for first attempts lives in this process, so that it sees what it started begin. */
  seesAttempts: boolean;
}

export function createStarter(deps: StarterDeps): Starter {
  const client = new Client({ connection: deps.connection, namespace: deps.namespace });
  const started = new Map<string, number>(); // in order of their start
  const outstanding = (): number => {
    // A start that nobody was seen to begin (no worker, another host's) stops counting after a while.
    for (const [workflowId, at] of started) {
      if (performance.now() - at < OUTSTANDING_MS) break;
      started.delete(workflowId);
    }
    return started.size;
  };
  const budget = createStartBudget(performance.now(), outstanding);
  let attributes = true; // does the server know our search attributes? Asked again after a minute.
  let attributesAt = 0;
  let downUntil = 0;

  /** It runs and sleeps: its row has changed, so let it look. One that has ended needs nothing. */
  const wakeExisting = (workflowId: string): Promise<void> =>
    client.workflow
      .getHandle(workflowId)
      .signal(WAKE_SIGNAL)
      .catch((error: unknown) => {
        if (error instanceof WorkflowNotFoundError) return;
        deps.log.debug({ err: error, workflow: workflowId }, 'a workflow could not be woken; its timer will');
      });

  const attempt = async (what: string, start: () => Promise<unknown>): Promise<boolean> => {
    if (!attributes && performance.now() - attributesAt > 60_000) attributes = true;
    const carried = attributes; // several starts may fail for them at once
    try {
      await deps.connection.withDeadline(Date.now() + START_DEADLINE_MS, start);
      downUntil = 0;
      return true;
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) {
        started.delete(what);
        if (what.startsWith(deliveryWorkflowId(''))) await wakeExisting(what);
        return true;
      }
      if (carried && /search attribute/i.test(messages(error))) {
        if (attributes) {
          deps.log.warn(
            'the Temporal server lacks the Wh… search attributes; going on without them (posthaste migrate adds them)',
          );
        }
        attributes = false;
        attributesAt = performance.now();
        return attempt(what, start);
      }
      downUntil = performance.now() + 1_000;
      started.delete(what);
      deps.log.warn(
        { err: error, workflow: what },
        'a workflow could not be started; the scanner will try again',
      );
      return false;
    }
  };
  const attributesOf = (names: DeliveryNames, input: DeliveryInput) => {
    if (!attributes) return {};
    const pairs: SearchAttributePair[] = [
      { key: keys.tenant, value: names.tenant },
      { key: keys.endpoint, value: names.endpoint },
      { key: keys.eventType, value: names.event_type },
      { key: keys.state, value: input.dueAt === undefined ? 'sending' : 'retrying' },
      { key: keys.attempt, value: input.last?.attempts ?? 0 },
    ];
    return { typedSearchAttributes: new TypedSearchAttributes(pairs) };
  };
  /** Outstanding until its first attempt begins, as this process or (by the rows) its relay sees it. */
  const noted = async (workflowId: string, start: () => Promise<boolean>): Promise<boolean> => {
    started.set(workflowId, performance.now());
    const done = await start();
    if (!done) started.delete(workflowId);
    return done;
  };
  const began = (workflowId: string): void => {
    const at = started.get(workflowId);
    if (at === undefined) return;
    started.delete(workflowId);
    const now = performance.now();
    budget.observe(now - at, now);
    deps.log.debug({ workflow: workflowId, ms: Math.round(now - at) }, 'workflow began');
  };
  const deliveryOptions = (names: DeliveryNames, input: DeliveryInput) => ({
    taskQueue: TASK_QUEUE,
    workflowId: deliveryWorkflowId(names.delivery),
    args: [input] as [DeliveryInput],
    staticSummary: `${names.event_type} → ${names.endpoint} (${names.tenant})`.slice(0, 200),
    staticDetails: `event \`${names.event}\`, delivery \`${names.delivery}\`, endpoint \`${names.endpoint}\`, tenant \`${names.tenant}\``,
    workflowIdReusePolicy: 'ALLOW_DUPLICATE' as const,
    ...attributesOf(names, input),
  });

  return {
    budget,
    seesAttempts: deps.seesAttempts,
    outstanding,
    available: () => performance.now() >= downUntil,
    async startDelivery(names, input) {
      const workflowId = deliveryWorkflowId(names.delivery);
      const start = () =>
        attempt(workflowId, () =>
          client.workflow.start(DELIVERY_WORKFLOW, {
            ...deliveryOptions(names, { deliveryId: names.delivery, ...input }),
            requestEagerStart: true,
          }),
        );
      // The scanner's have a lane and are not looked after by the relay.
      const seen = input.dueAt === undefined && (deps.seesAttempts || input.lane === undefined);
      return seen ? noted(workflowId, start) : start();
    },
    async startDispatch(dispatch, lane, members) {
      const workflowId = dispatchWorkflowId(dispatch);
      const start = () =>
        attempt(workflowId, () =>
          client.workflow.start(DISPATCH_WORKFLOW, {
            taskQueue: TASK_QUEUE,
            workflowId,
            args: [{ dispatchId: dispatch, lane }] as [DispatchInput],
            staticSummary: `lane ${lane}: ${members > 0 ? `${members} ${lane === 'held' ? 'endpoints' : 'deliveries'}, and ` : ''}groups that joined`,
            requestEagerStart: true,
          }),
        );
      return lane === 'first' ? noted(workflowId, start) : start();
    },
    startReplay(replay, tenant) {
      const workflowId = replayWorkflowId(replay);
      return attempt(workflowId, () =>
        client.workflow.start(REPLAY_WORKFLOW, {
          taskQueue: TASK_QUEUE,
          workflowId,
          args: [{ replayId: replay }] as [ReplayInput],
          staticSummary: `replay (${tenant})`,
          workflowIdReusePolicy: 'ALLOW_DUPLICATE',
          ...(attributes
            ? { typedSearchAttributes: new TypedSearchAttributes([{ key: keys.tenant, value: tenant }]) }
            : {}),
        }),
      );
    },
    wakeIfRunning: (delivery) => wakeExisting(deliveryWorkflowId(delivery)),
    wakeWorkflow: wakeExisting,
    async wakeEndpoint(endpoint, tenant) {
      const input: EndpointInput = { endpointId: endpoint };
      return attempt(endpointWorkflowId(endpoint), () =>
        client.workflow.signalWithStart(ENDPOINT_WORKFLOW, {
          taskQueue: TASK_QUEUE,
          workflowId: endpointWorkflowId(endpoint),
          args: [input] as [EndpointInput],
          staticSummary: `endpoint ${endpoint} (${tenant})`,
          workflowIdReusePolicy: 'ALLOW_DUPLICATE' as const,
          signal: WAKE_SIGNAL,
          signalArgs: [],
          ...(attributes
            ? {
                typedSearchAttributes: new TypedSearchAttributes([
                  { key: keys.tenant, value: tenant },
                  { key: keys.endpoint, value: endpoint },
                ]),
              }
            : {}),
        }),
      );
    },
    async wakeDelivery(names, generation) {
      return attempt(deliveryWorkflowId(names.delivery), () =>
        client.workflow.signalWithStart(DELIVERY_WORKFLOW, {
          ...deliveryOptions(names, { deliveryId: names.delivery, generation, lane: 'retry' }),
          signal: WAKE_SIGNAL,
          signalArgs: [],
        }),
      );
    },
    began,
  };
}

function messages(error: unknown): string {
  let text = '';
  for (let e = error; e instanceof Error; e = e.cause) text += `${e.message}\n`;
  return text;
}
