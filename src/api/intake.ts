/**
 * How events get in: concurrent requests share one statement and one commit, so that thousands a second cost little
 * more than hundreds. Called by events.ts.
 *
 *   add        events without key or own id: group → posthaste.accept
 *   addKeyed   one request with an Idempotency-Key or own ids: group → posthaste.accept_keyed; whoever meets a key
 *              that is locked elsewhere leaves the group and waits alone, 5 s at most
 *   addBatch   many events of one request: a transaction of their own, all or nothing
 */
import { accept, type NewEvent } from '../db/events.ts';
import { acceptKeyed, type KeyedAnswer, type KeyedRequest } from '../db/idempotency.ts';
import { isUnreachable, type Pool } from '../db/pool.ts';
import { ProblemError } from '../errors.ts';
import { createGrouper } from './group.ts';

const MAX_ROWS = 500;
const MAX_GROUP_BYTES = 4 * 1024 * 1024;
/** A statement costs nearly the same for four events as for one; at 300 events/s ten milliseconds leave a third of them. */
const SPACING_MS = 10;
const ENOUGH = 16;
const GROUP_LOCK_MS = 50;
const TURN_LOCK_MS = 250;
const PATIENCE_MS = 5_000;
const WAITING_CONNECTIONS = 2;
const MAX_REPEATS = 5;

export interface Intake {
  /** False: unknown tenant. */
  add(event: NewEvent): Promise<boolean>;
  addKeyed(request: KeyedRequest): Promise<KeyedAnswer[]>;
  addBatch(request: KeyedRequest): Promise<KeyedAnswer[]>;
  close(): Promise<void>;
}

export function createIntake(deps: { db: Pool; poke(): void }): Intake {
  const { db, poke } = deps;
  const turns = createTurns(WAITING_CONNECTIONS);

  const plain = createGrouper<NewEvent, boolean>({
    async run(events) {
      const written = await accept(db, events);
      if (written.size > 0) poke();
      return events.map((event) => written.has(event.id));
    },
    hopeless: isUnreachable,
    bytes: (event) => event.body.length,
    maxRows: MAX_ROWS,
    maxBytes: MAX_GROUP_BYTES,
    parallel: 2,
    spacingMs: SPACING_MS,
    enough: ENOUGH,
  });

  const keyed = createGrouper<KeyedRequest, KeyedAnswer[]>({
    run: async (requests, alone) =>
      alone ? [await patient(requests[0] as KeyedRequest, false)] : write(requests, GROUP_LOCK_MS, false),
    hopeless: isUnreachable,
    bytes: (request) => request.events.reduce((sum, event) => sum + event.body.length, 0),
    names: (request) => [
      ...(request.key === null ? [] : [`${request.tenant}/key/${request.key}`]),
      ...request.events.filter((event) => event.own).map((event) => `${request.tenant}/id/${event.id}`),
    ],
    maxRows: MAX_ROWS,
    maxBytes: MAX_GROUP_BYTES,
    parallel: 2,
    spacingMs: SPACING_MS,
    enough: ENOUGH,
  });

  /** One call; the answers of each request, in order. */
  async function write(requests: KeyedRequest[], lockMs: number, atomic: boolean): Promise<KeyedAnswer[][]> {
    const answers = await acceptKeyed(db, requests, { lockMs, atomic });
    if (answers.some((answer) => answer.outcome === 'accepted')) poke();
    let from = 0;
    return requests.map((request) => {
      const until = from + request.events.length;
      const own = answers.slice(from, until);
      from = until;
      return own;
    });
  }

  /**
   * One request until its keys are free, 5 s at most. The first try is short and finds most keys free; further ones
   * take turns on few connections, so that a key held for long takes none away from strangers.
   */
  async function patient(request: KeyedRequest, atomic: boolean): Promise<KeyedAnswer[]> {
    const until = performance.now() + PATIENCE_MS;
    let inTurn = false;
    for (let tries = 1; ; tries++) {
      if (inTurn && !(await turns.take(until))) throw inFlight();
      try {
        const lockMs = Math.max(
          10,
          Math.min(inTurn ? TURN_LOCK_MS : GROUP_LOCK_MS, until - performance.now()),
        );
        const answers = (await write([request], Math.round(lockMs), atomic))[0] as KeyedAnswer[];
        if (answers[0]?.outcome !== 'again') return answers; // 'again': the key was given up meanwhile
      } catch (error) {
        const state = (error as { code?: string }).code;
        const locked = state === '55P03';
        if (!locked && (tries >= MAX_REPEATS || (state !== '40P01' && state !== '40001'))) throw error;
      } finally {
        if (inTurn) turns.give();
      }
      if (performance.now() >= until) throw inFlight();
      inTurn = true;
    }
  }

  return {
    add: (event) => plain.add(event),
    async addKeyed(request) {
      const answers = await keyed.add(request);
      return answers[0]?.outcome === 'again' ? patient(request, false) : answers;
    },
    addBatch: (request) => patient(request, true),
    async close() {
      await Promise.all([plain.close(), keyed.close()]);
    },
  };
}

function inFlight(): ProblemError {
  return new ProblemError(
    'request_in_flight',
    'another request with this key or event id is still under way',
    {
      headers: { 'retry-after': '1' },
    },
  );
}

/** A semaphore whose waiters give up at a time of performance.now(). */
function createTurns(count: number): { take(until: number): Promise<boolean>; give(): void } {
  let free = count;
  const waiting: (() => void)[] = [];
  return {
    take(until) {
      if (free > 0) {
        free--;
        return Promise.resolve(true);
      }
      return new Promise((resolve) => {
        const turn = () => {
          clearTimeout(timer);
          resolve(true);
        };
        const timer = setTimeout(
          () => {
            waiting.splice(waiting.indexOf(turn), 1);
            resolve(false);
          },
          Math.max(0, until - performance.now()),
        );
        waiting.push(turn);
      });
    },
    give() {
      const next = waiting.shift();
      if (next === undefined) free++;
      else next();
    },
  };
}
