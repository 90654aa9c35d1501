/**
 * Claims of all groups of this process, in few statements. Called by sender.ts.
 *
 * A claim takes the locks of its endpoints. Groups that claim for the same endpoints side by side would only wait for each
 * other in the database, and there everyone who waits is woken by each commit: so while one claim is under way, what
 * touches its endpoints collects, and goes together when it is back. What touches others goes at once.
 */
import type { Pool } from '../db/pool.ts';
import { type ClaimAnswer, type ClaimAsk, claim } from '../db/verbs.ts';

const MAX_BATCH = 500;
const MAX_STATEMENTS = 4;

export interface Claimer {
  /** One answer per ask, by delivery. Rejects when the statement that held them failed: nothing was claimed then. */
  claim(asks: readonly ClaimAsk[]): Promise<ReadonlyMap<string, ClaimAnswer>>;
}

interface Entry {
  asks: readonly ClaimAsk[];
  endpoints: ReadonlySet<string>;
  resolve: (answers: ReadonlyMap<string, ClaimAnswer>) => void;
  reject: (error: unknown) => void;
}

export function createClaimer(db: Pool): Claimer {
  let queue: Entry[] = [];
  const running = new Set<ReadonlySet<string>>();

  const isFree = (entry: Entry): boolean => {
    for (const endpoints of running) {
      for (const endpoint of entry.endpoints) if (endpoints.has(endpoint)) return false;
    }
    return true;
  };

  const start = (): void => {
    if (running.size >= MAX_STATEMENTS) return;
    const batch: Entry[] = [];
    const rest: Entry[] = [];
    let asks = 0;
    for (const entry of queue) {
      const fits = batch.length === 0 || asks + entry.asks.length <= MAX_BATCH;
      if (fits && isFree(entry)) {
        batch.push(entry);
        asks += entry.asks.length;
      } else {
        rest.push(entry);
      }
    }
    if (batch.length === 0) return;
    queue = rest;
    void run(batch);
  };

  const run = async (batch: readonly Entry[]): Promise<void> => {
    const endpoints = new Set(batch.flatMap((entry) => [...entry.endpoints]));
    running.add(endpoints);
    try {
      const answers = await claim(
        db,
        batch.flatMap((entry) => entry.asks),
      );
      const byDelivery = new Map(answers.map((answer) => [answer.delivery, answer]));
      for (const entry of batch) entry.resolve(byDelivery);
    } catch (error) {
      for (const entry of batch) entry.reject(error);
    } finally {
      running.delete(endpoints);
      start();
    }
  };

  return {
    claim(asks) {
      return new Promise((resolve, reject) => {
        queue.push({ asks, endpoints: new Set(asks.map(({ endpoint }) => endpoint)), resolve, reject });
        start();
      });
    },
  };
}
