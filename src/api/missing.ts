/** What every route says of things that are not there, or are another tenant's: the same 404. */
import { type ProblemCode, ProblemError } from '../errors.ts';

const missing = (code: ProblemCode, what: string) => (): never => {
  throw new ProblemError(code, `there is no such ${what}`);
};

export const noTenant: () => never = missing('tenant_not_found', 'tenant');
export const noEndpoint: () => never = missing('endpoint_not_found', 'endpoint');
export const noEvent: () => never = missing('event_not_found', 'event');
export const noDelivery: () => never = missing('delivery_not_found', 'delivery');
export const noReplay: () => never = missing('replay_not_found', 'replay');
export const noKey: () => never = missing('key_not_found', 'key');
