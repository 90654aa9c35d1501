/**
 * A checked URL in the pieces that an attempt needs. The rules run on every URL before it is used, not only when
 * it is saved; the result is remembered per URL text, because hot endpoints ask thousands of times a second.
 */
import { LRUCache } from 'lru-cache';
import type { EgressAllow } from '../domain/addresses.ts';
import { checkUrl } from '../domain/url-rules.ts';

/** Where a POST goes. */
export interface Target {
  readonly ok: true;
  /** Scheme, host and, if unusual, port. */
  readonly origin: string;
  /** Value of the host header. */
  readonly authority: string;
  /** Name or literal without brackets. */
  readonly host: string;
  readonly literal: string | null;
  readonly port: number;
  readonly secure: boolean;
  readonly allowOnly: boolean;
  /** Path and query as sent. */
  readonly path: string;
}

/** A URL that may not be used, with a sentence for the customer. */
export interface BadTarget {
  readonly ok: false;
  readonly reason: string;
}

const MAX_URLS = 10_000;

/** @returns a function from URL text to its target under the given exceptions. */
export function createTargets(allow: EgressAllow): (url: string) => Target | BadTarget {
  const cache = new LRUCache<string, Target | BadTarget>({ max: MAX_URLS });
  return (url) => {
    const known = cache.get(url);
    if (known) return known;
    const target = makeTarget(url, allow);
    cache.set(url, target);
    return target;
  };
}

function makeTarget(url: string, allow: EgressAllow): Target | BadTarget {
  const check = checkUrl(url, allow);
  if (!check.ok) return check;
  const { origin, host: authority, pathname, search } = new URL(check.href);
  return {
    ok: true,
    origin,
    authority,
    host: check.literal ?? check.host,
    literal: check.literal,
    port: check.port,
    secure: check.secure,
    allowOnly: check.allowOnly,
    path: pathname + search,
  };
}
