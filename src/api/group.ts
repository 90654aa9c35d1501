/**
 * Group commit: items that arrive while a statement is under way share the next one. Called by intake.ts.
 *
 * A lone item waits for nothing. While `parallel` groups are being written the next one collects, up to its bounds; and
 * where items come side by side, a few wait for more soon after a group, as a statement costs the same for one as for many.
 * When a group fails, each of its members is tried again alone, so that one bad item never fails strangers; when the
 * reason says that nobody could succeed (`hopeless`), all get it at once.
 */

export interface Grouper<T, R> {
  add(item: T): Promise<R>;
  /** Resolves when everything added so far is settled. */
  close(): Promise<void>;
}

interface Entry<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

export interface GrouperOptions<T, R> {
  /** Writes a group; one result per item, in order. `alone`: a retry of one member, which may wait longer. */
  run(items: T[], alone: boolean): Promise<R[]>;
  hopeless(error: unknown): boolean;
  bytes(item: T): number;
  /** Names that may occur once in a group; others wait for the next. */
  names?(item: T): readonly string[];
  maxRows: number;
  maxBytes: number;
  parallel: number;
  /** So long after a group was begun the next one collects, unless it has `enough`. Milliseconds. */
  spacingMs: number;
  enough: number;
}

/** For so long items are taken to come side by side. */
const BESIDE_MS = 1_000;

export function createGrouper<T, R>(options: GrouperOptions<T, R>): Grouper<T, R> {
  let queue: Entry<T, R>[] = [];
  let running = 0;
  let scheduled: NodeJS.Timeout | NodeJS.Immediate | undefined;
  let spaced = false; // what is scheduled waits for more
  let begunAt = Number.NEGATIVE_INFINITY;
  let besideAt = Number.NEGATIVE_INFINITY; // two were under way at once
  let pending = 0;
  let idle: (() => void)[] = [];

  const settle = (count: number): void => {
    pending -= count;
    if (pending > 0) return;
    for (const done of idle) done();
    idle = [];
  };

  const take = (): Entry<T, R>[] => {
    const group: Entry<T, R>[] = [];
    const names = new Set<string>();
    let bytes = 0;
    let at = 0;
    const kept: Entry<T, R>[] = [];
    for (; at < queue.length && group.length < options.maxRows; at++) {
      const entry = queue[at] as Entry<T, R>;
      const size = options.bytes(entry.item);
      if (group.length > 0 && bytes + size > options.maxBytes) break;
      const own = options.names?.(entry.item) ?? [];
      if (own.some((name) => names.has(name))) {
        kept.push(entry);
        continue;
      }
      for (const name of own) names.add(name);
      bytes += size;
      group.push(entry);
    }
    queue = kept.length === 0 ? queue.slice(at) : [...kept, ...queue.slice(at)];
    return group;
  };

  const write = async (group: Entry<T, R>[]): Promise<void> => {
    try {
      const results = await options.run(
        group.map((entry) => entry.item),
        false,
      );
      for (const [index, entry] of group.entries()) entry.resolve(results[index] as R);
      settle(group.length);
    } catch (error) {
      if (options.hopeless(error)) {
        for (const entry of group) entry.reject(error);
        settle(group.length);
      } else {
        // Not awaited: members that wait long must not hold up the next group.
        for (const entry of group) void alone(entry);
      }
    }
  };

  const alone = async (entry: Entry<T, R>): Promise<void> => {
    try {
      entry.resolve((await options.run([entry.item], true))[0] as R);
    } catch (error) {
      entry.reject(error);
    }
    settle(1);
  };

  const flush = (): void => {
    scheduled = undefined;
    spaced = false;
    while (queue.length > 0 && running < options.parallel) {
      running++;
      begunAt = performance.now();
      void write(take()).finally(() => {
        running--;
        schedule();
      });
    }
  };

  const schedule = (): void => {
    if (queue.length === 0 || running >= options.parallel) return;
    const now = performance.now();
    const alone = now - besideAt > BESIDE_MS; // one producer that waits for each answer would only be slowed down
    const waitMs = alone || queue.length >= options.enough ? 0 : begunAt + options.spacingMs - now;
    if (scheduled !== undefined && (!spaced || waitMs > 0)) return;
    if (spaced) clearTimeout(scheduled as NodeJS.Timeout);
    spaced = waitMs > 0;
    scheduled = spaced ? setTimeout(flush, waitMs) : setImmediate(flush);
  };

  return {
    add(item) {
      return new Promise<R>((resolve, reject) => {
        pending++;
        if (pending > 1) besideAt = performance.now();
        queue.push({ item, resolve, reject });
        schedule();
      });
    },
    close() {
      return pending === 0 ? Promise.resolve() : new Promise((resolve) => idle.push(resolve));
    },
  };
}
