/**
 * Whose events go next: deficit round robin over tenants (Shreedhar & Varghese 1995), where an event costs the
 * worker time it is expected to take. A tenant with slow receivers or a flood gets its share, not everyone's.
 * Called by src/relay/relay.ts before each fan-out. Costs in milliseconds of worker time.
 */

export interface TenantQueue {
  readonly tenant: string;
  readonly waiting: number; // events, at least 1
  readonly weight: number; // 1 to 100
  readonly costMs: number; // expected worker time per event, > 0
  readonly fanOut: number; // deliveries expected per event, > 0
  readonly room: number; // deliveries this tenant may still have unfinished
}

/** Kept between rounds by the caller: unused credit of tenants that still wait. */
export type Deficits = Map<string, number>;

const QUANTUM_MS = 20;
const MAX_ROUNDS = 10_000;

/**
 * How many events to take of each tenant, in turn order, until about `deliveries` are reached or nobody may send.
 * Rotates: the caller passes tenants beginning after the one served last. Mutates `deficits`.
 */
export function pickTurns(
  queues: readonly TenantQueue[],
  deficits: Deficits,
  deliveries: number,
): { tenant: string; events: number }[] {
  const turns = new Map<string, { tenant: string; events: number; open: boolean; queue: TenantQueue }>();
  for (const queue of queues) {
    if (queue.waiting > 0 && queue.room >= 1)
      turns.set(queue.tenant, { tenant: queue.tenant, events: 0, open: true, queue });
  }
  let left = deliveries;
  let open = turns.size;
  for (let round = 0; open > 0 && left > 0 && round < MAX_ROUNDS; round++) {
    for (const turn of turns.values()) {
      if (!turn.open || left <= 0) continue;
      const { queue } = turn;
      let credit = (deficits.get(turn.tenant) ?? 0) + QUANTUM_MS * queue.weight;
      const byCredit = Math.floor(credit / queue.costMs);
      const byRoom = Math.max(turn.events === 0 ? 1 : 0, Math.floor(queue.room / queue.fanOut)) - turn.events;
      const byLeft = Math.ceil(left / queue.fanOut);
      const take = Math.max(0, Math.min(byCredit, queue.waiting - turn.events, byRoom, byLeft));
      turn.events += take;
      left -= take * queue.fanOut;
      credit -= take * queue.costMs;
      const done = turn.events >= queue.waiting || byRoom - take <= 0;
      if (done) {
        turn.open = false;
        open--;
      }
      // Credit is for waiting in the queue: who has nothing left or may not send starts anew.
      deficits.set(turn.tenant, done ? 0 : credit);
    }
  }
  for (const tenant of deficits.keys()) if (!turns.has(tenant)) deficits.delete(tenant);
  return [...turns.values()]
    .filter((turn) => turn.events > 0)
    .map(({ tenant, events }) => ({ tenant, events }));
}
