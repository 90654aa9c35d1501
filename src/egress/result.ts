/**
 * Putting a result into words and lists: the parts of PostResult that need more than copying. Called by attempt.ts
 * when an attempt settles and by post.ts for attempts that never began.
 */
import type { OutcomeClass, Phase } from '../domain/classes.ts';
import { OUTCOME_CLASSES } from '../domain/classes.ts';
import { HEAD_MAX, requestHeadBytes } from '../domain/headers.ts';
import type { PostInput, PostResult } from './post.ts';

/** As undici gives them: lower-case names, repeated ones as lists. */
export type ResponseHeaders = Record<string, string | string[] | undefined>;

/** Statuses with which servers complain about the size of a request head. */
const HEAD_LIMIT_STATUSES = [400, 413, 431, 494];

/** One pair per header line, in the order received. */
export function headerPairs(headers: ResponseHeaders | undefined): [name: string, value: string][] {
  const pairs: [string, string][] = [];
  for (const name in headers) {
    const value = headers[name] as string | string[];
    if (typeof value === 'string') pairs.push([name, value]);
    else for (const one of value) pairs.push([name, one]);
  }
  return pairs;
}

/** The header as received, or null; several are joined, which no grammar accepts. */
export function retryAfterOf(headers: ResponseHeaders | undefined): string | null {
  const value = headers?.['retry-after'];
  if (value === undefined) return null;
  return typeof value === 'string' ? value : value.join(', ');
}

/**
 * Why it failed, for the log of the attempt; null for a success.
 * @param code error code, or '' where it would say too much.
 */
export function explain(
  outcome: OutcomeClass,
  phase: Phase,
  code: string,
  status: number | null,
  headBytes: number,
): string | null {
  if (outcome === 'ok') return null;
  const text = OUTCOME_CLASSES[outcome].meaning;
  if (status !== null && HEAD_LIMIT_STATUSES.includes(status) && headBytes > HEAD_MAX) {
    return `${text} Our request head had ${headBytes} bytes, which may exceed a limit of the receiver.`;
  }
  if (outcome === 'deadline') return `${text} (phase ${phase})`;
  return code === '' ? text : `${text} (${code})`;
}

/** The result of an attempt that never began. */
export function refused(
  input: PostInput,
  outcome: OutcomeClass,
  phase: Phase,
  reason: string | null,
): PostResult {
  return {
    class: outcome,
    phase,
    written: false,
    status: null,
    startedAt: Date.now(),
    durationMs: 0,
    timings: { dnsMs: null, connectMs: null, tlsMs: null, ttfbMs: null },
    responseHeaders: [],
    responseBody: Buffer.alloc(0),
    responseBodyText: '',
    responseTruncated: false,
    retryAfter: null,
    headBytes: requestHeadBytes('/', '', input.headers, input.body.length),
    reusedSocket: false,
    freshRetry: false,
    error: reason ?? OUTCOME_CLASSES[outcome].meaning,
  };
}
