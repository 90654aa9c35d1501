/**
 * Any error as an RFC 9457 problem document. Bad input is a ProblemError; an unreachable database is a 503; whatever
 * else arrives here is a fault of ours: a 500 that says nothing but the request id, and a line in the log.
 */
import { isUnreachable } from '../db/pool.ts';
import { PROBLEMS, ProblemError } from '../errors.ts';
import type { Log } from '../log.ts';

const MAX_ERRORS = 20;
const RETRY_SECONDS = '2';

export function problemResponse(error: unknown, requestId: string, log: Log): Response {
  const problem = asProblem(error, requestId, log);
  const [status, title, advice] = PROBLEMS[problem.code];
  const document = {
    type: `/problems#${problem.code}`,
    title,
    status,
    code: problem.code,
    detail: problem.message,
    advice,
    ...(problem.errors === undefined ? {} : { errors: problem.errors.slice(0, MAX_ERRORS) }),
    ...problem.more,
    request_id: requestId,
  };
  return new Response(JSON.stringify(document), {
    status,
    headers: {
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      'x-request-id': requestId,
      ...problem.headers,
    },
  });
}

function asProblem(error: unknown, requestId: string, log: Log): ProblemError {
  if (error instanceof ProblemError) return error;
  const sqlState = (error as { code?: string } | null)?.code;
  if (isUnreachable(error) || BUSY.has(sqlState ?? '')) {
    log.warn({ err: error, request: requestId }, 'a request failed because PostgreSQL could not serve it');
    return new ProblemError('unavailable', 'the database cannot be reached or is busy', {
      headers: { 'retry-after': RETRY_SECONDS },
    });
  }
  if (sqlState === 'PHEND') return new ProblemError('endpoint_disabled', (error as Error).message);
  if (sqlState === 'PHTST') return new ProblemError('test_delivery', (error as Error).message);
  if (sqlState === 'PHEXP') return new ProblemError('event_expired', (error as Error).message);
  log.error({ err: error, request: requestId }, 'a request failed for a reason of ours');
  return new ProblemError('internal', '');
}

/** Serialization failure, deadlock, lock timeout, cancelled by a time limit, out of memory or connections. */
const BUSY = new Set(['40001', '40P01', '55P03', '57014', '53200', '53300', '25P03', '25006']);
