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
export const REPLAY_WORKFLOW = 'replay';
export const SEND_EVENT_WORKFLOW = 'sendEvent';
export const deliveryWorkflowId = (delivery: string): string => `delivery/${delivery}`;
export const dispatchWorkflowId = (dispatch: string): string => `dispatch/${dispatch}`;
export const replayWorkflowId = (replay: string): string => `replay/${replay}`;
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

/** How an attempt activity ended, as far as the workflow must know. `made`: it made the attempt whose result this is. */
export type AttemptOutcome =
  | {
      kind: 'ended';
      state: 'delivered' | 'dead' | 'failed' | 'cancelled' | 'unknown'; // failed: a test send
      attempts: number;
      reason?: string;
      status?: number | null;
      class?: string;
      made?: boolean;
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
      made?: boolean;
    };

export interface DeliveryResult {
  state: 'delivered' | 'failed' | 'cancelled' | 'unknown';
  attempts: number;
}

export interface DeliveryState {
  state: 'sending' | 'retrying' | 'busy' | 'held' | 'delivered' | 'dead' | 'failed' | 'cancelled' | 'unknown';
  attempts: number;
  nextAttemptAt: string | null; // null: none is planned; `held` waits for its endpoint, `busy` for the attempt under way
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

/**
 * What `replay` sends again: what a replay made through the API says; or one delivery; or what failed at an endpoint
 * in a range of time (RFC 3339, by when deliveries were made; `until` absent: now), with `missed` also the events of the
 * range that the endpoint subscribes to and never got.
 */
export type ReplayInput =
  | { replayId: string }
  | { deliveryId: string }
  | { endpointId: string; since: string; until?: string; missed?: boolean; rate?: number };

export interface ReplayProgress {
  replayId: string | null; // null: not made yet
  state: 'running' | 'done' | 'cancelled' | 'stopped' | 'unknown';
  /** Matches at the beginning; null: not counted, or more than 100,000. */
  total: number | null;
  moved: number; // sent back to work, or cancelled
  missed: number; // deliveries made for events that were missed
  skipped: number; // matched, but the endpoint takes none or the event is no longer kept
  /** It waits until enough of what it has moved was delivered. */
  waiting: boolean;
  /** When it will have moved everything, at the pace so far; null: unknown. */
  eta: string | null;
  reason: string | null; // why it was stopped
}

/** An event to send: one that exists, or one to be made (its data then stays in this workflow's history). */
export type SendEventInput =
  | { tenant: string; eventId: string }
  | {
      tenant: string;
      type: string;
      /** Any JSON value. It goes through Temporal's JSON converter: integers beyond 2^53 lose digits. */
      data: unknown;
      /**
       * Absent: made from the id of the `sendEvent` workflow, so that one workflow id sends one event however often it runs;
       * by the activity of posthaste/temporal/activity from the run and the call.
       */
      id?: string;
      version?: number | string;
      timestamp?: string;
    };

export interface SendEventResult {
  event: string; // the webhook-id
  deliveries: string[]; // one per subscribed endpoint; none: nobody subscribed
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
/** Of `replay`: the range of an endpoint to send again (signal of `endpoint`, see ReplayInput). */
export interface ReplayRange {
  since: string;
  until?: string;
}

/** Failure type of a delivery that ran out of time or attempts. */
export const DEAD_LETTERED = 'DeadLettered';

/** Failure types of `replay` and `sendEvent`: what was asked for can't be done. */
export const REFUSED = {
  deliveryNotFound: 'DeliveryNotFound',
  endpointNotFound: 'EndpointNotFound',
  endpointDisabled: 'EndpointDisabled',
  replayNotFound: 'ReplayNotFound',
  tenantNotFound: 'TenantNotFound',
  eventNotFound: 'EventNotFound',
  eventConflict: 'EventConflict',
  invalidInput: 'InvalidInput',
} as const;

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
  replayEndpoint(input: { endpointId: string } & ReplayRange): Promise<{ replayId: string }>;
  beginReplay(
    input: Exclude<ReplayInput, { replayId: string }> & { key: string },
  ): Promise<{ replayId: string }>;
  pageReplay(input: { replayId: string }): Promise<ReplayProgress & { waitMs: number }>;
  cancelReplay(input: { replayId: string }): Promise<ReplayProgress>;
  /** Of the workflow `sendEvent`, which asks again while `deliveries` is null: not fanned out yet. Not for users. */
  sendEvent(input: SendEventInput): Promise<{ event: string; deliveries: string[] | null }>;
}
