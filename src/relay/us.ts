/**
 * The guard against ourselves: when many independent endpoints fail at once, is it us? Remembers who failed in the last
 * minute, asks src/domain/us.ts whether that is suspicious, and then has our own network checked. Only while that fails
 * too, breakers do not trip: half the internet can also break without us. Called by health.ts with each step.
 */
import type { DueHealth } from '../db/health.ts';
import type { Pool } from '../db/pool.ts';
import { countActive, knownGood } from '../db/us.ts';
import { suspectUs } from '../domain/us.ts';
import type { Log } from '../log.ts';

/** src/egress/self-check.ts. */
export type CheckNetwork = (
  urls: readonly string[],
) => Promise<{ verdict: 'fine' | 'us' | 'unknown'; tried: number; proxy: boolean | null }>;

export interface UsOptions {
  db: Pool;
  log: Log;
  /** Shards this process judges: its failing endpoints are a share of those active there. */
  shards: () => readonly number[];
  check: CheckNetwork;
  /** Tried beside endpoints that lately succeeded. */
  targets: readonly string[];
  onChange: (frozen: boolean) => void;
}

const WINDOW_MS = 60_000;
const CHECK_MS = 10_000;
const ACTIVE_MS = 5_000;
const KNOWN_GOOD = 10;

export function createUs(options: UsOptions): (due: readonly DueHealth[]) => Promise<boolean> {
  const { db, log } = options;
  const failing = new Map<string, { domain: string; at: number }>();
  let frozen = false;
  let active = { count: 0, at: Number.NEGATIVE_INFINITY };
  let checked = { us: false, at: Number.NEGATIVE_INFINITY };

  const turn = (to: boolean, facts: object): boolean => {
    if (to !== frozen) {
      frozen = to;
      options.onChange(to);
      if (to)
        log.error(
          facts,
          'it is us: many independent endpoints fail, and so does our own check. Breakers are frozen; deliveries go on by their schedules. Check network, DNS and egress proxy of this process',
        );
      else log.warn(facts, 'our network works again, or too few endpoints fail to tell: breakers trip again');
    }
    return to;
  };

  return async (due) => {
    const now = performance.now();
    for (const row of due) note(failing, row, now);
    for (const [endpoint, { at }] of failing) if (now - at > WINDOW_MS) failing.delete(endpoint);
    const list = [...failing.values()].map(({ domain }) => ({ domain, address: '' }));
    if (!suspectUs(list, list.length).suspect) return turn(false, { failing: list.length });
    if (now - active.at >= ACTIVE_MS) active = { count: await countActive(db, options.shards()), at: now };
    const { suspect, independent } = suspectUs(list, Math.max(active.count, list.length));
    const facts = { failing: list.length, independent, active: active.count };
    if (!suspect) return turn(false, facts);
    if (now - checked.at < CHECK_MS) return turn(checked.us, facts);
    const domains = new Set(list.map(({ domain }) => domain));
    const good = (await knownGood(db, [...failing.keys()], KNOWN_GOOD)).filter(
      (url) => !domains.has(hostOf(url)),
    );
    const answer = await options.check([...options.targets, ...good]);
    checked = { us: answer.verdict === 'us', at: performance.now() };
    if (answer.verdict === 'unknown')
      log.warn(
        facts,
        'many independent endpoints fail, and nothing is known to compare with: set POSTHASTE_SELF_CHECK',
      );
    return turn(checked.us, { ...facts, ...answer });
  };
}

function note(failing: Map<string, { domain: string; at: number }>, row: DueHealth, now: number): void {
  const failed = row.facts.some((fact) => Number((fact as { fail?: unknown }).fail ?? 0) > 0);
  const succeeded = row.last_success_at !== null && row.now_ms - row.last_success_at.getTime() < WINDOW_MS;
  if (succeeded) failing.delete(row.endpoint);
  else if (failed) failing.set(row.endpoint, { domain: hostOf(row.url), at: now });
}

const hostOf = (url: string): string => URL.parse(url)?.hostname.replace(/^\[|\]$/g, '') ?? '';
