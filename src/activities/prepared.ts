/**
 * Endpoints ready to be sent to, kept between batches: opening sealed secrets and importing keys costs more than a
 * signature. A claim says which revision of the settings it was granted under, so what is kept is used only while it is
 * no older than that, and a change takes effect on the next attempt. Called by sender.ts.
 */
import { LRUCache } from 'lru-cache';
import type { DbClock } from '../db/clock.ts';
import { loadEndpoints } from '../db/load.ts';
import type { Pool } from '../db/pool.ts';
import type { Log } from '../log.ts';
import type { MasterKeys } from '../secrets.ts';
import { type PreparedEndpoint, prepareEndpoint } from './prepare.ts';

/** Some 2 KB each. */
const MAX_KEPT = 20_000;

export interface PreparedEndpoints {
  /** As last seen; good for its cap, not to send with. */
  peek(endpoint: string): PreparedEndpoint | undefined;
  /**
   * By endpoint, of the revision asked for or a later one. Left out: what could not be prepared; its attempts are recorded
   * as a fault of ours, which burns nothing and pages someone.
   */
  get(asks: ReadonlyMap<string, number>): Promise<ReadonlyMap<string, PreparedEndpoint>>;
}

export function createPreparedEndpoints(deps: {
  db: Pool;
  clock: DbClock;
  keys: MasterKeys;
  log: Log;
}): PreparedEndpoints {
  const kept = new LRUCache<string, PreparedEndpoint>({ max: MAX_KEPT });
  const loading = new Map<string, Promise<unknown>>(); // a pump asks for its endpoint once per delivery

  const usable = (endpoint: string, revision: number): PreparedEndpoint | undefined => {
    const known = kept.get(endpoint);
    if (known === undefined || known.row.revision < revision) return undefined;
    return (known.row.valid_until?.getTime() ?? Number.POSITIVE_INFINITY) > deps.clock.now()
      ? known
      : undefined;
  };

  const load = async (endpoints: readonly string[]): Promise<PreparedEndpoint[]> => {
    const fresh: PreparedEndpoint[] = [];
    for (const row of await loadEndpoints(deps.db, endpoints)) {
      try {
        fresh.push(prepareEndpoint(row, deps.keys));
      } catch (error) {
        kept.delete(row.id);
        deps.log.error(
          { err: error, endpoint: row.id },
          'an endpoint could not be prepared; check POSTHASTE_MASTER_KEYS',
        );
      }
    }
    for (const one of fresh) kept.set(one.row.id, one);
    return fresh;
  };

  return {
    peek: (endpoint) => kept.peek(endpoint),
    async get(asks) {
      await Promise.allSettled([...asks.keys()].map((endpoint) => loading.get(endpoint)));
      const found = new Map<string, PreparedEndpoint>();
      const missing: string[] = [];
      for (const [endpoint, revision] of asks) {
        const known = usable(endpoint, revision);
        if (known === undefined) missing.push(endpoint);
        else found.set(endpoint, known);
      }
      if (missing.length === 0) return found;
      const loaded = load(missing);
      for (const endpoint of missing) loading.set(endpoint, loaded);
      try {
        for (const one of await loaded) found.set(one.row.id, one);
      } finally {
        for (const endpoint of missing) loading.delete(endpoint);
      }
      return found;
    },
  };
}
