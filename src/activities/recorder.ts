/**
 * Writes attempts in batches, one recorder per process. Called by sender.ts with every answered request.
 *
 * Group commit: while one batch is being written the next one collects, so that a lone attempt is written at once
 * and a thousand share a few calls. Nothing a receiver answered is dropped while this process lives: when PostgreSQL
 * is away, batches wait and are written on its return (the claim's token is still valid then; the reaper gives
 * workers 15 s for it).
 */
import type { Pool } from '../db/pool.ts';
import { type AttemptRecord, type Recorded, record } from '../db/verbs.ts';
import type { Log } from '../log.ts';

const MAX_BATCH = 400;
const MAX_WRITERS = 2;
/** The second writer is for full batches, and for when the first is held up by somebody's lock. */
const HELD_UP_MS = 50;
const MAX_DELAY_MS = 5;
/** Answers that come together are written together, also when somebody waits for them. */
const FLUSH_MS = 1;

export interface Recorder {
  /** Resolves when written. Rejects only when the row itself can't be written (a bug), never for an outage. */
  add(entry: AttemptRecord): Promise<Recorded>;
  /** Starts writing what has collected, without waiting for more. */
  flush(): void;
  /** Attempts not yet written. */
  waiting(): number;
  /** Resolves when everything added so far is written. */
  drain(): Promise<void>;
}

interface Entry {
  record: AttemptRecord;
  resolve: (recorded: Recorded) => void;
  reject: (error: unknown) => void;
}

export function createRecorder(deps: { db: Pool; log: Log }): Recorder {
  let queue: Entry[] = [];
  let writers = 0;
  let unwritten = 0;
  let timer: NodeJS.Timeout | undefined;
  let startedAt = 0; // of the batch begun last
  let idle: (() => void)[] = [];

  const start = (): void => {
    clearTimeout(timer);
    timer = undefined;
    while (queue.length > 0 && writers < MAX_WRITERS) {
      if (writers > 0 && queue.length < MAX_BATCH && performance.now() - startedAt < HELD_UP_MS) {
        timer = setTimeout(start, HELD_UP_MS);
        return;
      }
      startedAt = performance.now();
      const batch = queue.slice(0, MAX_BATCH);
      queue = queue.slice(MAX_BATCH);
      writers++;
      void write(batch).finally(() => {
        writers--;
        unwritten -= batch.length;
        if (unwritten === 0) {
          for (const done of idle) done();
          idle = [];
        }
        start();
      });
    }
  };

  const write = async (batch: Entry[]): Promise<void> => {
    for (let wait = 100; ; wait = Math.min(2_000, wait * 2)) {
      try {
        const answers = await record(
          deps.db,
          batch.map((entry) => entry.record),
        );
        for (const [i, entry] of batch.entries()) entry.resolve(answers[i]!);
        return;
      } catch (error) {
        if (isBadRow(error)) return writeSingly(batch, error);
        deps.log.warn(
          { err: error, attempts: batch.length },
          'PostgreSQL is away; answered attempts wait to be recorded',
        );
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  };

  /** One bad row must not take its neighbours along. */
  const writeSingly = async (batch: Entry[], cause: unknown): Promise<void> => {
    if (batch.length === 1) {
      deps.log.error(
        { err: cause, delivery: batch[0]!.record.delivery },
        'an attempt could not be recorded; its claim will expire',
      );
      batch[0]!.reject(cause);
      return;
    }
    for (const entry of batch) await write([entry]);
  };

  return {
    add(entry) {
      return new Promise<Recorded>((resolve, reject) => {
        queue.push({ record: entry, resolve, reject });
        unwritten++;
        if (queue.length >= MAX_BATCH) start();
        else timer ??= setTimeout(start, writers > 0 ? HELD_UP_MS : unwritten === 1 ? 0 : MAX_DELAY_MS);
      });
    },
    flush() {
      if (writers > 0 || queue.length === 0) return; // whoever is writing goes on with the queue
      clearTimeout(timer);
      timer = setTimeout(start, FLUSH_MS);
    },
    waiting: () => unwritten,
    drain: () => (unwritten === 0 ? Promise.resolve() : new Promise((resolve) => idle.push(resolve))),
  };
}

/**
 * Only what says "this row can't be written" (data, constraint, statement; a value that src/db/arrays.ts can't encode) is
 * given up on. Everything else, known or not, is an outage of some kind: the answers wait.
 */
function isBadRow(error: unknown): boolean {
  return /^(22|23|42|ERR_OUT_OF_RANGE|ERR_INVALID_ARG_TYPE)/.test((error as { code?: string }).code ?? '');
}
