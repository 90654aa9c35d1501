/**
 * Slots of endpoints that this process has asked for or holds, whichever of its groups: what they are known to lack is not
 * asked of the database, where each question takes the endpoint's lock. Other processes' are only known there.
 */
export interface Slots {
  taken(endpoint: string): number;
  take(endpoint: string): void;
  leave(endpoint: string): void;
  /** One that was asked for and not given: nothing became free. */
  drop(endpoint: string): void;
  /** A request has gone out; and its answer, or the lack of one, is there. */
  sent(endpoint: string): void;
  answered(endpoint: string): void;
  /** Since when the endpoint has answered nothing, though all its slots are with it and none with us; null: not so. */
  silentSince(endpoint: string): number | null;
  /** Told of each slot that is left, until the function it answers is called; who listens longest is told first. */
  listen(freed: (endpoint: string) => void): () => void;
}

interface Taken {
  slots: number;
  /** Of these, requests that wait for an answer. */
  sent: number;
  movedAt: number; // performance.now() of the last change
}

export function createSlots(): Slots {
  const taken = new Map<string, Taken>();
  const listeners = new Set<(endpoint: string) => void>();
  const drop = (endpoint: string): void => {
    const at = taken.get(endpoint);
    if (at !== undefined && --at.slots <= 0) taken.delete(endpoint);
  };
  const move = (endpoint: string, by: 1 | -1): void => {
    const at = taken.get(endpoint);
    if (at === undefined) return;
    at.sent += by;
    at.movedAt = performance.now();
  };
  return {
    taken: (endpoint) => taken.get(endpoint)?.slots ?? 0,
    take(endpoint) {
      const at = taken.get(endpoint);
      if (at === undefined) taken.set(endpoint, { slots: 1, sent: 0, movedAt: performance.now() });
      else at.slots++;
    },
    drop,
    leave(endpoint) {
      drop(endpoint);
      for (const freed of listeners) freed(endpoint);
    },
    sent: (endpoint) => move(endpoint, 1),
    answered: (endpoint) => move(endpoint, -1),
    silentSince(endpoint) {
      const at = taken.get(endpoint);
      return at === undefined || at.sent < at.slots ? null : at.movedAt;
    },
    listen(freed) {
      listeners.add(freed);
      return () => listeners.delete(freed);
    },
  };
}
