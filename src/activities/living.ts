/**
 * The living budget: how many deliveries may sleep in a workflow of their own. Beyond it a row waits alone; schedule,
 * states and log are the same. Counted from rows, since workflows of dead processes live on. Used by send.ts and
 * dispatch.ts; refreshed by src/main.ts every second.
 */
export interface Living {
  /** There is room for one more. */
  free(): boolean;
  /** True when one more delivery may have a workflow; counts it until the next refresh. */
  reserve(): boolean;
  refresh(living: number): void;
  count(): number;
}

export function createLiving(limit: number): Living {
  let living = 0;
  return {
    free: () => living < limit,
    reserve() {
      if (living >= limit) return false;
      living++;
      return true;
    },
    refresh(count) {
      living = count;
    },
    count: () => living,
  };
}
