/**
 * Names and shapes shared by workflows and everyone who starts or messages them. Public: users' own Temporal clients
 * rely on it. Only ids, numbers and verdicts ever enter a workflow's history.
 */

import type { EndpointReport } from '../domain/endpoint-report.ts';

export type { EndpointReport };

/** Task queues: workflows and first attempts on the first, everything slower apart, with slots of its own. */
export const TASK_QUEUE = 'posthaste';
export const LANE_QUEUES = {
  first: 'posthaste',
  retry: 'posthaste-retry',
  held: 'posthaste-held',
  bulk: 'posthaste-bulk',
} as const;
export type Lane = keyof typeof LANE_QUEUES;

export const DELIVERY_WORKFLOW = 'delivery';
export const DISPATCH_WORKFLOW = 'dispatch';
export const ENDPOINT_WORKFLOW = 'endpoint';
export const deliveryWorkflowId = (delivery: string): string => `delivery/${delivery}`;
export const dispatchWorkflowId = (dispatch: string): string => `dispatch/${dispatch}`;
export const endpointWorkflowId = (endpoint: string): string => `endpoint/${endpoint}`;

/**
 * `dueAt`: epoch ms to sleep until before the first attempt; absent: now. `lane`: queue of the first attempt. `last`:
 * what came of the attempt before this workflow existed, to be shown.
 */
export interface DeliveryInput {
  deliveryId: string;
  generation: number;
  dueAt?: number;
  lane?: Lane;
  last?: LastAttempt;
}

export interface LastAttempt {
  attempts: number;
  status: number | null;
  class: string;
}

export interface DispatchInput {
  dispatchId: string;
  lane?: Lane;
}

/** How an attempt activity ended, as far as the workflow must know. */
export type AttemptOutcome =
  | {
      kind: 'ended';
      state: 'delivered' | 'dead' | 'failed' | 'cancelled' | 'unknown'; // failed: a test send
      attempts: number;
      reason?: string;
      status?: number | null;
      class?: string;
    }
  | {
      kind: 'wait';
      state: 'retrying' | 'busy' | 'held';
      untilMs: number;
      attempts: number;
      nextAttempt: number;
      generation: number;
      status?: number | null;
      class?: string;
    };

export interface DeliveryResult {
  state: 'delivered' | 'failed' | 'cancelled' | 'unknown';
  attempts: number;
}

export interface DeliveryState {
  state: 'sending' | 'retrying' | 'busy' | 'held' | 'delivered' | 'dead' | 'failed' | 'cancelled' | 'unknown';
  attempts: number;
  nextAttemptAt: string | null;
  lastStatus: number | null;
  lastClass: string | null;
}

export interface DispatchResult {
  delivered: number;
  failed: number;
  left: number;
}

/** `report`: what was known when the last run of this workflow went on as a new one. */
export interface EndpointInput {
  endpointId: string;
  report?: EndpointReport;
}

export interface EndpointResult {
  health: string;
}

/** A stretch of time whose failed deliveries are sent again; RFC 3339. `until` left out: now. */
export interface ReplayRange {
  since: string;
  until?: string;
}

/** Answer of an operator's action: the delivery's state afterwards, or 'not_found'. */
export interface OperatorResult {
  state: string;
  attempts: number;
}

/** Signals and updates of `delivery`. `replay` resends (use signal-with-start); `wake` only says "read your row". */
export const REPLAY_SIGNAL = 'replay';
export const WAKE_SIGNAL = 'wake';
export const RESEND_UPDATE = 'resend';
export const CANCEL_UPDATE = 'cancel';
/** Updates of `endpoint`; its signals are `wake` and `replay` (ReplayRange). */
export const PAUSE_UPDATE = 'pause';
export const RESUME_UPDATE = 'resume';
export const STATE_QUERY = 'state';
export const PROGRESS_QUERY = 'progress';

/** Failure type of a delivery that ran out of time or attempts. */
export const DEAD_LETTERED = 'DeadLettered';

/** Optional search attributes: a server without them still works. */
export const SEARCH_ATTRIBUTES = {
  tenant: 'WhTenant',
  endpoint: 'WhEndpoint',
  eventType: 'WhEventType',
  state: 'WhState',
  attempt: 'WhAttempt',
} as const;

/** What workflows ask for. src/activities implements it; the type lives here so that workflows import no code. */
export interface Activities {
  attemptDelivery(input: { deliveryId: string }): Promise<AttemptOutcome>;
  attemptDispatch(input: { dispatchId: string }): Promise<DispatchResult>;
  resendDelivery(input: { deliveryId: string }): Promise<OperatorResult>;
  cancelDelivery(input: { deliveryId: string }): Promise<OperatorResult>;
  disownDelivery(input: { deliveryId: string }): Promise<void>;
  pumpEndpoint(input: { endpointId: string }): Promise<EndpointReport>;
  pauseEndpoint(input: { endpointId: string }): Promise<{ state: string }>;
  resumeEndpoint(input: { endpointId: string }): Promise<{ state: string }>;
  disownEndpoint(input: { endpointId: string }): Promise<void>;
}
