/**
 * Gives replays that nobody pages a workflow: new ones at once, lost ones a minute after their last page. Called by
 * scanner.ts at each scan. Outside the start budget: people make replays, a few.
 */
import type { Pool } from '../db/pool.ts';
import { scanReplays } from '../db/replays.ts';
import type { Starter } from '../temporal/starter.ts';

const ALIVE_MS = 60_000;
const AT_ONCE = 5;

export async function startReplays(db: Pool, starter: Starter, shards: readonly number[]): Promise<void> {
  for (const { id, tenant } of await scanReplays(db, shards, AT_ONCE, ALIVE_MS))
    void starter.startReplay(id, tenant);
}
