/** One claimed attempt: request → POST → decision → record. Called by sender.ts. */
import type { LoadedDelivery } from '../db/load.ts';
import { giveBack } from '../db/verbs.ts';
import type { PostResult } from '../egress/post.ts';
import type { MemberOutcome } from './outcome.ts';
import { type PreparedEndpoint, type PreparedRequest, prepareRequest } from './prepare.ts';
import { classifyResult } from './result.ts';
import type { SenderDeps, SendOptions } from './sender.ts';

/** Claims last deadline + 10 s; a request that has not been written 9 s after the claim was asked for never is. */
const CLAIM_MARGIN_MS = 9_000;

/** What whoever sends wants to know meanwhile. */
export interface AttemptEvents {
  sent(): void;
  answered(): void;
  /** Does somebody wait for the slot? */
  someoneWaits(): boolean;
}

/** What was granted. */
export interface Claimed {
  token: number | null;
  n: number | null;
  epoch: number | null;
  revision: number | null; // of the endpoint's settings when it was granted
}

/** null: the request can't be made from what is stored. Recorded as a fault of ours, like an endpoint that can't be. */
function prepareSafely(
  deps: SenderDeps,
  row: LoadedDelivery,
  endpoint: PreparedEndpoint,
): PreparedRequest | null {
  try {
    return prepareRequest(row, endpoint, deps.clock.now());
  } catch (error) {
    deps.log.error(
      { err: error, delivery: row.delivery, event: row.event },
      'a request could not be prepared',
    );
    return null;
  }
}

/** One claimed attempt, from signature to record. */
export async function attempt(
  deps: SenderDeps,
  row: LoadedDelivery,
  endpoint: PreparedEndpoint | undefined,
  claimed: Claimed,
  claimedAt: number,
  options: Pick<SendOptions, 'ownWorkflow'>,
  on: AttemptEvents,
): Promise<MemberOutcome> {
  const startBefore = claimedAt + CLAIM_MARGIN_MS;
  let result: PostResult | undefined;
  let logged = '[]';
  let bytes = 0;
  const request = endpoint === undefined ? null : prepareSafely(deps, row, endpoint);
  if (endpoint !== undefined && request !== null) {
    logged = request.logged;
    bytes = request.body.length;
    on.sent();
    result = await deps.egress.post({
      url: endpoint.row.url,
      tenant: row.tenant,
      endpoint: row.endpoint,
      revision: endpoint.row.revision,
      headers: request.headers,
      body: request.body,
      timeoutMs: endpoint.row.timeout_ms,
      connections: endpoint.row.cap + (row.kind === 'test' ? 1 : 0), // a test has a slot of its own
      tls: endpoint.tls,
      startBefore,
    });
    on.answered();
    if (!result.written && (result.class === 'not_started' || result.class === 'cancelled')) {
      await giveBack(deps.db, [{ delivery: row.delivery, endpoint: row.endpoint, token: claimed.token! }]);
      return { kind: 'left' };
    }
  }
  const attempted = classifyResult({
    row,
    endpoint,
    claimed,
    result,
    logged,
    bytes,
    nowMs: deps.clock.now(),
    ownWorkflow: options.ownWorkflow,
  });
  const recording = deps.recorder.add(attempted.record);
  if (on.someoneWaits()) deps.recorder.flush();
  const recorded = await recording;
  return {
    kind: 'recorded',
    state: recorded.state,
    dueAtMs: recorded.due_at?.getTime() ?? null,
    n: claimed.n!,
    class: attempted.class,
    status: attempted.record.status,
    reason: attempted.record.reason,
    workflow: attempted.record.workflow,
    durationMs: attempted.record.duration_ms,
    revision: endpoint?.row.revision ?? 0,
  };
}
