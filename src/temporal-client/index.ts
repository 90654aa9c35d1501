/**
 * posthaste/temporal: what users' Temporal clients and workflows import. Names, types and typed messages; no code of
 * ours or anyone's comes along, so it is safe in a workflow bundle. The activity is apart: posthaste/temporal/activity.
 */
import type { QueryDefinition, SignalDefinition, UpdateDefinition } from '@temporalio/common';
import {
  CANCEL_UPDATE,
  type DeliveryInput,
  type DeliveryResult,
  type DeliveryState,
  type DispatchInput,
  type DispatchResult,
  type OperatorResult,
  PROGRESS_QUERY,
  REPLAY_SIGNAL,
  RESEND_UPDATE,
  type ReplayInput,
  type ReplayProgress,
  type SendEventInput,
  type SendEventResult,
  STATE_QUERY,
} from '../workflows/contract.ts';

export * from '../workflows/contract.ts';

/** Workflow types, for `client.workflow.start<SendEventWorkflow>('sendEvent', …)` and `executeChild<…>(…)`. */
export type DeliveryWorkflow = (input: DeliveryInput) => Promise<DeliveryResult>;
export type DispatchWorkflow = (input: DispatchInput) => Promise<DispatchResult>;
export type ReplayWorkflow = (input: ReplayInput) => Promise<ReplayProgress>;
export type SendEventWorkflow = (input: SendEventInput) => Promise<SendEventResult>;

/** For `proxyActivities<SendEventActivities>(…)` in workflows whose worker runs createSendEventActivity(…). */
export interface SendEventActivities {
  sendEvent(input: SendEventInput): Promise<SendEventResult>;
}

/** A definition is its name and kind; the SDK's define…() makes the same object. */
const message = <T>(type: 'signal' | 'query' | 'update', name: string): T => ({ type, name }) as T;

/** Messages of `delivery/<id>`. */
export const resendUpdate = message<UpdateDefinition<OperatorResult>>('update', RESEND_UPDATE);
export const cancelUpdate = message<UpdateDefinition<OperatorResult>>('update', CANCEL_UPDATE);
export const replaySignal = message<SignalDefinition>('signal', REPLAY_SIGNAL);
export const stateQuery = message<QueryDefinition<DeliveryState>>('query', STATE_QUERY);

/** Messages of `replay/<id>`. */
export const cancelReplayUpdate = message<UpdateDefinition<ReplayProgress>>('update', CANCEL_UPDATE);
export const replayProgressQuery = message<QueryDefinition<ReplayProgress>>('query', PROGRESS_QUERY);
