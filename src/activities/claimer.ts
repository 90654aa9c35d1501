/**
 * Claims of all groups of this process, in few statements. Called by sender.ts.
 *
 * A claim takes the locks of its endpoints. Groups that claim for the same endpoints side by side would only wait for each
 * other in the database, and there everyone who waits is woken by each commit: so while one claim is under way, what
 * touches its endpoints collects, and goes together when it is back. What touches others goes at once. Nobody is overtaken
 * at an endpoint: who waits for one keeps those behind from all of his.
 */
import { isUnreachable, type Pool } from '../db/pool.ts';
import { type ClaimAnswer, type ClaimAsk, claim } from '../db/verbs.ts';

const MAX_BATCH = 500;
const MAX_STATEMENTS = 8;

export interface Claims {
  /** One for each ask, by delivery. */
  answers: ReadonlyMap<string, ClaimAnswer>;
  /** performance.now() before they were asked for. */
  claimedAt: number;
}

export interface Claimer {
  /**
   * Null when `stop` aborted before they were asked for. Rejects when the statement failed that held them: then nothing was
   * claimed. A failure that others brought into the statement is not theirs: they are asked for again alone.
   */
  claim(asks: readonly ClaimAsk[], stop: AbortSignal): Promise<Claims | null>;
}

interface Entry {
  asks: readonly ClaimAsk[];
  endpoints: ReadonlySet<string>;
  stop: AbortSignal;
  alone: boolean;
  resolve: (claims: Claims | null) => void;
  reject: (error: unknown) => void;
}

const meet = (some: ReadonlySet<string>, others: ReadonlySet<string>): boolean => {
  for (const endpoint of some) if (others.has(endpoint)) return true;
  return false;
};

export function createClaimer(db: Pool): Claimer {
  let queue: Entry[] = [];
  const running = new Set<ReadonlySet<string>>();

  /** Takes what goes together now, and leaves the rest in its order. */
  const next = (): Entry[] => {
    const batch: Entry[] = [];
    const rest: Entry[] = [];
    const deliveries = new Set<string>(); // one asked for by two groups is granted to one of them, in two statements
    const taken = new Set<string>();
    for (const endpoints of running) for (const endpoint of endpoints) taken.add(endpoint);
    for (const entry of queue) {
      if (entry.stop.aborted) {
        entry.resolve(null);
        continue;
      }
      const goes =
        !meet(entry.endpoints, taken) &&
        (batch.length === 0 || (!entry.alone && deliveries.size + entry.asks.length <= MAX_BATCH)) &&
        batch[0]?.alone !== true &&
        !entry.asks.some(({ delivery }) => deliveries.has(delivery));
      if (goes) {
        batch.push(entry);
        for (const { delivery } of entry.asks) deliveries.add(delivery);
      } else {
        rest.push(entry);
        for (const endpoint of entry.endpoints) taken.add(endpoint);
      }
    }
    queue = rest;
    return batch;
  };

  const start = (): void => {
    while (running.size < MAX_STATEMENTS) {
      const batch = next();
      if (batch.length === 0) return;
      void run(batch);
    }
  };

  const run = async (batch: readonly Entry[]): Promise<void> => {
    const endpoints = new Set(batch.flatMap((entry) => [...entry.endpoints]));
    running.add(endpoints);
    const claimedAt = performance.now();
    try {
      const rows = await claim(
        db,
        batch.flatMap((entry) => entry.asks),
      );
      const answers = new Map(rows.map((answer) => [answer.delivery, answer]));
      for (const entry of batch) entry.resolve({ answers, claimedAt });
    } catch (error) {
      if (batch.length === 1 || isUnreachable(error)) for (const entry of batch) entry.reject(error);
      else queue.unshift(...batch.map((entry) => ({ ...entry, alone: true })));
    } finally {
      running.delete(endpoints);
      start();
    }
  };

  return {
    claim(asks, stop) {
      return new Promise((resolve, reject) => {
        const endpoints = new Set(asks.map(({ endpoint }) => endpoint));
        queue.push({ asks, endpoints, stop, alone: false, resolve, reject });
        start();
      });
    },
  };
}
