/**
 * Why an endpoint takes no delivery now, or not every one, for people. Called by outlook.ts; what is sent is decided by
 * the claim (migrations/functions/verbs.sql) and the health step (health.ts).
 */
import { clockTime } from './sentences.ts';

export interface EndpointStanding {
  readonly state: 'active' | 'paused' | 'disabled' | 'deleted';
  readonly mode: 'shared' | 'pump';
  readonly health: 'closed' | 'open' | 'half_open' | 'recovering' | 'misconfigured';
  readonly probeAtMs: number | null; // null: none is planned, or one is under way
  readonly pauseUntilMs: number | null; // asked for by the receiver
}

export interface EndpointWait {
  /** Goes on from "its endpoint, which". */
  readonly which: string;
  /** Whether to expect it of the next minutes, too. One that is merely full may have room when an attempt is due. */
  readonly lasting: boolean;
}

/** null: it takes deliveries when they are due. */
export function endpointWait(endpoint: EndpointStanding, nowMs: number): EndpointWait | null {
  const { probeAtMs, pauseUntilMs } = endpoint;
  if (endpoint.state === 'paused') return { which: 'is paused until someone resumes it', lasting: true };
  if (pauseUntilMs !== null && pauseUntilMs > nowMs)
    return { which: `asked for a pause until ${clockTime(pauseUntilMs)}`, lasting: true };
  const tried =
    probeAtMs === null || probeAtMs <= nowMs ? 'is being tried' : `is tried again ${clockTime(probeAtMs)}`;
  switch (endpoint.health) {
    case 'open':
    case 'half_open':
      return { which: `fails and ${tried} with one delivery`, lasting: true };
    case 'misconfigured':
      return {
        which: `refuses everything and ${tried} with one delivery, or at once when its settings change`,
        lasting: true,
      };
    case 'recovering':
      return { which: 'is recovering and gets what waits at a growing rate', lasting: true };
    default:
      return endpoint.mode === 'shared'
        ? null
        : { which: 'takes no more at a time and gets what waits in turn', lasting: false };
  }
}
