/**
 * Running dispatches that take further groups of their lane along. A workflow start costs a Temporal server what a hundred
 * deliveries cost, and takes longer than they do; so while the activity of one dispatch runs in this process, new groups
 * join it, and now and then another is started, without a group, which takes over. Asked by relay.ts and scanner.ts,
 * which make groups; dispatch.ts is what carries. To the rows nothing changes: each group has its own lease on life.
 *
 *   begins ──▶ takes groups ──▶ takes no more (relieved by a younger one, too old, nothing came, stopping) ──▶ its groups end
 */
import type { Lane } from '../workflows/contract.ts';

/** After so long the next group asks for relief, and need not wait for it: histories stay short and fresh. */
const RELIEVED_MS = 10_000;
/** No relief has come (Temporal is slow, or away): it takes no more, and groups need workflows again. */
const TOO_OLD_MS = 3 * RELIEVED_MS;
/** With no group under way for so long it ends. */
const IDLE_MS = 2_500;
/** Between two calls for relief. */
const RELIEF_PAUSE_MS = 3_000;

export interface Carriers {
  /** A running dispatch takes groups of this lane. */
  open(lane: Lane): boolean;
  /** Gives it a group. False: none takes it, it needs a workflow. */
  carry(lane: Lane, dispatch: string): boolean;
  /**
   * The activity of a dispatch takes groups from now on.
   * @param take works through a group; never rejects.
   */
  begin(lane: Lane, take: (dispatch: string) => Promise<void>): Carrier;
}

export interface Carrier {
  /** The group that the dispatch was started for has ended; from then on it may be idle. */
  ownEnded(): void;
  /** Takes a group from elsewhere. Only while it is open. */
  take(dispatch: string): void;
  isOpen(): boolean;
  /** No more. */
  close(): void;
  /** Resolves when no more will come and all that came have ended. */
  readonly over: Promise<void>;
}

interface Open {
  take: (dispatch: string) => void;
  close: () => void;
  since: number; // performance.now()
}

/** @param relieve starts a dispatch without a group: when it begins, it takes over from the older ones of its lane. */
export function createCarriers(relieve: (lane: Lane) => void): Carriers {
  const taking = new Map<Lane, Open[]>(); // oldest first
  const reliefAt = new Map<Lane, number>();
  const youngest = (lane: Lane): Open | undefined => taking.get(lane)?.at(-1);

  return {
    open: (lane) => youngest(lane) !== undefined,
    carry(lane, dispatch) {
      const carrier = youngest(lane);
      if (carrier === undefined) return false;
      const now = performance.now();
      const asked = reliefAt.get(lane) ?? Number.NEGATIVE_INFINITY;
      if (now - carrier.since >= RELIEVED_MS && now - asked >= RELIEF_PAUSE_MS) {
        reliefAt.set(lane, now);
        relieve(lane);
      }
      carrier.take(dispatch);
      return true;
    },
    begin(lane, take) {
      const since = performance.now();
      const older = taking.get(lane) ?? [];
      let under = 1; // its own group
      let closed = false;
      let timer: NodeJS.Timeout | undefined;
      let resolve: () => void = () => {};
      const over = new Promise<void>((done) => {
        resolve = done;
      });
      const ended = (): void => {
        if (--under > 0) return;
        if (closed) resolve();
        else timer = setTimeout(close, IDLE_MS);
      };
      const close = (): void => {
        if (closed) return;
        closed = true;
        clearTimeout(timer);
        clearTimeout(oldAge);
        taking.set(
          lane,
          (taking.get(lane) ?? []).filter((other) => other !== open),
        );
        if (under === 0) resolve();
      };
      const oldAge = setTimeout(close, TOO_OLD_MS);
      const open: Open = {
        since,
        close,
        take(dispatch) {
          clearTimeout(timer);
          under++;
          void take(dispatch).finally(ended);
        },
      };
      taking.set(lane, [...older, open]);
      for (const other of older) if (since - other.since >= RELIEVED_MS) other.close();
      return { ownEnded: ended, take: open.take, isOpen: () => !closed, close, over };
    },
  };
}
