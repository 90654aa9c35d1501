/** Claims as src/db/verbs.ts makes them, for tests that know deliveries and not their endpoints. */
import type { Db } from '../../src/db/pool.ts';
import { type ClaimAnswer, type ClaimAsk, claim as claimLoaded } from '../../src/db/verbs.ts';

type Ask = Omit<ClaimAsk, 'endpoint' | 'kind' | 'lane'>;

export async function claim(db: Db, asks: readonly Ask[]): Promise<ClaimAnswer[]> {
  const { rows } = await db.query(
    'select delivery, endpoint, kind, lane from posthaste.work where delivery = any ($1)',
    [asks.map(({ delivery }) => delivery)],
  );
  const known = new Map(rows.map((row) => [row.delivery, row]));
  return claimLoaded(
    db,
    asks.map(({ delivery, generation, n }) => ({
      delivery,
      generation,
      n,
      endpoint: known.get(delivery)?.endpoint ?? 'ep_none',
      kind: known.get(delivery)?.kind ?? 'live',
      lane: known.get(delivery)?.lane ?? 'first',
    })),
  );
}
