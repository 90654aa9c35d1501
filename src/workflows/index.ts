/** Entry of the workflow bundle: the workflows by the names of the contract, nothing else. */
export { delivery } from './delivery.ts';
export { dispatch } from './dispatch.ts';
export { endpoint } from './endpoint.ts';
export { replay } from './replay.ts';
export { sendEvent } from './send-event.ts';
