/**
 * Workflows of deliveries that failed in a group and sleep until they are due, started a little apart. What fails fails
 * together (the requests to a receiver that hangs end in the same moment), and a dozen starts at once take half a second of
 * two cores from what is new. Called by group.ts.
 *
 * A crash before the start: the row's scan_at is 30 s after it is due, and the scanner starts it then, as after any lost start.
 */
import { waitingFor } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import type { DeliveryNames, Starter } from '../temporal/starter.ts';
import type { DeliveryInput } from '../workflows/contract.ts';

const APART_MS = 150;
/** They are there this long before they are due. */
const AHEAD_MS = 2_000;

export interface Sleeper extends Omit<DeliveryInput, 'deliveryId'> {
  dueAt: number;
}

export interface Sleepers {
  /** Resolves when it was tried to start it, or there is no need any more. Never rejects. */
  start(names: DeliveryNames, input: Sleeper): Promise<void>;
}

export function createSleepers(deps: { db: Pool; starter: Starter }): Sleepers {
  let nextAt = Number.NEGATIVE_INFINITY;
  return {
    async start(names, input) {
      const now = performance.now();
      const latest = now + Math.max(0, input.dueAt - Date.now() - AHEAD_MS);
      const at = Math.min(latest, Math.max(now, nextAt));
      nextAt = Math.max(nextAt, at) + APART_MS;
      if (at <= now) {
        await deps.starter.startDelivery(names, input);
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, at - now));
      // An operator may have been there meanwhile, and told a workflow that did not exist yet.
      const row = await waitingFor(deps.db, names.delivery).catch(() => undefined);
      if (row === null) return;
      if (row === undefined || (row.generation === input.generation && row.state === 'retrying'))
        await deps.starter.startDelivery(names, { ...input, dueAt: row?.due_at.getTime() ?? input.dueAt });
      else await deps.starter.startDelivery(names, { generation: row.generation, lane: 'retry' });
    },
  };
}
