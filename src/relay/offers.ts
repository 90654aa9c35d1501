/**
 * For a relay that runs apart from its workers: groups join dispatches that run in other processes, as they do in its own
 * (src/activities/carriers.ts). A group is offered in its row; whoever runs a dispatch of the lane and has room takes it
 * (src/activities/dispatch.ts), and one that nobody takes at once gets a workflow after all.
 *
 *   offered ──▶ taken (the row says so; its taker renews it)
 *      └──────▶ withdrawn after 250 ms ──▶ a workflow is started, and nothing is offered for a while
 *
 * A crash of the relay: an offer stands until somebody takes it, or the scanner dissolves the group by its lease.
 */
import { offerDispatch, withdrawOffer } from '../db/dispatches.ts';
import type { Pool } from '../db/pool.ts';
import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import type { Starter } from '../temporal/starter.ts';
import type { Lane } from '../workflows/contract.ts';

/** What takes groups along without a workflow of their own. */
export interface GroupCarriers {
  open(lane: Lane): boolean;
  carry(lane: Lane, dispatch: string, members: number): boolean;
}

export interface Offers extends GroupCarriers {
  /** A group of first attempts was worked on somewhere: a dispatch runs there, for a moment more. */
  worked(): void;
}

const WAIT_MS = 250;
/** A dispatch without groups ends after 2.5 s. */
const OPEN_MS = 2_000;
/** What nobody takes has waited in vain: for so long every group gets its workflow, twice as long each time in a row. */
const REFUSED_MS = 1_000;
const REFUSED_MOST_MS = 32_000;
/** Now and then a dispatch is started without a group: it relieves the running one, or runs beside it on another host. */
const RELIEF_MS = 3_000;

export function createOffers(deps: { db: Pool; starter: Starter; log: Log }): Offers {
  let openUntil = Number.NEGATIVE_INFINITY;
  let startedAt = Number.NEGATIVE_INFINITY;
  let closedUntil = Number.NEGATIVE_INFINITY;
  let closedMs = REFUSED_MS;
  const isOpen = (now: number): boolean => now < openUntil && now >= closedUntil;

  const offer = async (lane: Lane, dispatch: string, members: number): Promise<void> => {
    let waits = true;
    try {
      await offerDispatch(deps.db, dispatch);
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      waits = await withdrawOffer(deps.db, dispatch);
    } catch (error) {
      deps.log.debug({ err: error, dispatch }, 'a group could not be offered; it gets a workflow');
    }
    if (!waits) {
      closedMs = REFUSED_MS;
      return;
    }
    const now = performance.now();
    if (now >= closedUntil) {
      closedUntil = now + closedMs;
      closedMs = Math.min(REFUSED_MOST_MS, closedMs * 2);
    }
    deps.log.debug({ dispatch, closedMs }, 'nobody took a group');
    await deps.starter.startDispatch(dispatch, lane, members); // once too often is harmless
  };

  return {
    open: (lane) => lane === 'first' && isOpen(performance.now()),
    worked() {
      openUntil = performance.now() + OPEN_MS;
    },
    carry(lane, dispatch, members) {
      const now = performance.now();
      if (lane !== 'first') return false;
      if (!isOpen(now)) {
        startedAt = now;
        return false;
      }
      if (now - startedAt >= RELIEF_MS) {
        startedAt = now;
        void deps.starter.startDispatch(newId('dsp'), lane, 0);
      }
      void offer(lane, dispatch, members);
      return true;
    },
  };
}
