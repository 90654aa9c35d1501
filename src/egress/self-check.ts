/**
 * Is our own way to the world open? Connects to targets that should be there, through the proxy if there is one, by the
 * same dial as every delivery, and sends nothing. Called by post.ts for the health step's question whether it is us.
 * Times are milliseconds.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Dial, type DialContext } from './dial.ts';
import { reachProxy } from './proxy.ts';
import type { BadTarget, Target } from './target.ts';

export interface SelfCheck {
  /** `fine`: something was reached. `us`: nothing was, or the proxy is away. `unknown`: there was nothing to try. */
  readonly verdict: 'fine' | 'us' | 'unknown';
  readonly tried: number;
  /** False: the egress proxy can't be reached; null: there is none. */
  readonly proxy: boolean | null;
}

const BUDGET_MS = 3_000;
const CONCURRENCY = 5;

/** @param urls known-good, the best first; the first one reached ends the check. */
export async function selfCheck(
  context: DialContext,
  targets: (url: string) => Target | BadTarget,
  urls: readonly string[],
): Promise<SelfCheck> {
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(), BUDGET_MS);
  let tried = 0;
  let reached = false;
  const worker = async (): Promise<void> => {
    while (tried < urls.length && !over.signal.aborted) {
      const target = targets(urls[tried++] as string);
      if (!target.ok || !(await reach(context, target, over.signal))) continue;
      reached = true;
      over.abort();
    }
  };
  try {
    const proxy = context.proxy ? await reachProxy(context.proxy, context.resolver, BUDGET_MS / 2) : null;
    if (proxy === false) return { verdict: 'us', tried, proxy };
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
    return { verdict: reached ? 'fine' : tried > 0 ? 'us' : 'unknown', tried, proxy };
  } finally {
    clearTimeout(timer);
  }
}

/** A handshake that fails has reached somebody: what is wrong with a certificate is not our network. */
async function reach(context: DialContext, target: Target, over: AbortSignal): Promise<boolean> {
  const dial = new Dial(context, target, undefined, `self-check ${target.origin}`);
  const late = delay(BUDGET_MS, null, { signal: over, ref: false }).catch(() => null);
  const outcome = await Promise.race([dial.run(), late]);
  if (outcome === null) {
    dial.cancel();
    return false;
  }
  if (outcome.ok) outcome.socket.destroy();
  return outcome.ok || outcome.phase === 'tls';
}
