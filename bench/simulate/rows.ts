/**
 * The waiting deliveries of the simulated endpoint. A row is one number, created time × 64 + place in the schedule:
 * all have one policy, so the earliest deadline is the smallest number, and a million of them are an array.
 */

const STEPS = 64;
export const rowOf = (createdMs: number, step: number): number =>
  createdMs * STEPS + Math.min(step, STEPS - 1);
export const createdOf = (row: number): number => Math.floor(row / STEPS);
export const stepOf = (row: number): number => row % STEPS;

/** A binary heap, smallest first. Rows that arrive in order cost nothing to add. */
export class Rows {
  readonly #heap: number[] = [];

  get size(): number {
    return this.#heap.length;
  }

  get first(): number | undefined {
    return this.#heap[0];
  }

  add(row: number): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(row);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent]! <= row) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = row;
  }

  take(): number | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1]! < heap[child]!) child++;
      if (heap[child]! >= last) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

/** What happens at a tick, by tick. */
export class Calendar<T> {
  readonly #days = new Map<number, T[]>();

  add(tick: number, item: T): void {
    const day = this.#days.get(tick);
    if (day === undefined) this.#days.set(tick, [item]);
    else day.push(item);
  }

  take(tick: number): readonly T[] {
    const day = this.#days.get(tick);
    if (day === undefined) return [];
    this.#days.delete(tick);
    return day;
  }
}
