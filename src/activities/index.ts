/** The activities as one typed object, with their dependencies bound. Called by src/main.ts. */
import { cancel, resend } from '../db/operators.ts';
import type { Activities } from '../workflows/contract.ts';
import type { ActivityDeps } from './deps.ts';
import { attemptDispatch } from './dispatch.ts';
import { disownEndpoint, pauseEndpoint, resumeEndpoint } from './endpoint.ts';
import { pumpEndpoint } from './pump.ts';
import { beginReplay, endReplay, pageReplay, startReplay } from './replays.ts';
import { attemptDelivery, disownDelivery, operate } from './send.ts';
import { sendEvent } from './send-event.ts';

export { type ReplayRequest, startReplay } from './replays.ts';

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
    replayEndpoint: async (input) => ({ replayId: await startReplay(deps, input) }),
    beginReplay: async (input) => ({ replayId: await beginReplay(deps, input) }),
    pageReplay: ({ replayId }) => pageReplay(deps, replayId),
    cancelReplay: ({ replayId }) => endReplay(deps, replayId),
    sendEvent: (input) => sendEvent(deps, input),
  };
}
