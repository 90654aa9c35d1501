/** How one member of a batch ends. The closed list that send.ts, dispatch.ts and observe.ts act on. */
import type { ClaimVerdict } from '../db/verbs.ts';
import type { OutcomeClass } from '../domain/classes.ts';

/** What became of one member of a batch. */
export type MemberOutcome =
  | {
      kind: 'recorded';
      state: 'delivered' | 'retrying' | 'dead' | 'cancelled' | 'stale';
      dueAtMs: number | null;
      n: number;
      class: OutcomeClass;
      status: number | null;
      reason: string | null;
      workflow: boolean;
      durationMs: number;
      revision: number; // of the endpoint, as it was sent to
    }
  | {
      kind: 'refused';
      verdict: Exclude<ClaimVerdict, 'granted' | 'later'>;
      untilMs: number | null;
      n: number | null;
    }
  | { kind: 'denied' } // no slot for longer than patienceMs
  | { kind: 'left' }; // this process is stopping; nothing was sent
