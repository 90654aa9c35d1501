/** The activities as one typed object, with their dependencies bound. Called by src/main.ts. */
import { cancel, resend } from '../db/operators.ts';
import type { Activities } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import { attemptDispatch } from './dispatch.ts';
import { disownEndpoint, pauseEndpoint, resumeEndpoint } from './endpoint.ts';
import { pumpEndpoint } from './pump.ts';
import { attemptDelivery, disownDelivery, operate } from './send.ts';

export function createActivities(deps: ActivityDeps): Activities {
  return {
    attemptDelivery: (input) => attemptDelivery(deps, input),
    attemptDispatch: (input) => attemptDispatch(deps, input),
    resendDelivery: ({ deliveryId }) => operate(deps, deliveryId, resend),
    cancelDelivery: ({ deliveryId }) => operate(deps, deliveryId, cancel),
    disownDelivery: ({ deliveryId }) => disownDelivery(deps, deliveryId),
    pumpEndpoint: (input) => pumpEndpoint(deps, input),
    pauseEndpoint: ({ endpointId }) => pauseEndpoint(deps, endpointId),
    resumeEndpoint: ({ endpointId }) => resumeEndpoint(deps, endpointId),
    disownEndpoint: ({ endpointId }) => disownEndpoint(deps, endpointId),
  };
}
