/**
 * One test send: claim → POST → record, past the queues and the gate that traffic waits in, because somebody waits for
 * the answer and there is one per endpoint at most. Called by send.ts.
 */
import type { LoadedDelivery } from '../db/load.ts';
import { claim } from '../db/verbs.ts';
import type { ActivityDeps } from './deps.ts';
import type { MemberOutcome } from './outcome.ts';

export async function sendTest(deps: ActivityDeps, row: LoadedDelivery): Promise<MemberOutcome> {
  const claimedAt = performance.now();
  const [answer] = await claim(deps.db, [row]);
  const { verdict, until, n } = answer!;
  if (verdict === 'later') return { kind: 'denied' };
  if (verdict !== 'granted') return { kind: 'refused', verdict, untilMs: until?.getTime() ?? null, n };
  return deps.sender.sendClaimed(row, answer!, claimedAt, { ownWorkflow: () => false });
}
