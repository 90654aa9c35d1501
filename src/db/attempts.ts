/** The attempt log, read for people. It is written by the record call (src/db/verbs.ts). */
import type { Db } from './pool.ts';

export interface AttemptRow {
  id: string;
  n: number;
  generation: number;
  started_at: Date;
  duration_ms: number | null;
  status: number | null;
  class: string;
  phase: string | null;
  error: string | null;
  request_url: string;
  request_headers: string; // JSON array of [name, value]
  request_bytes: number;
  head_bytes: number | null;
  response_headers: string | null;
  response_body: Buffer | null;
  response_truncated: boolean;
  fresh_retry: boolean;
  decision: string;
  next_due_at: Date | null;
  rule: string | null; // src/domain/rules.ts; null: written by an older version
  own_due_at: Date | null;
  retry_after_s: number | null;
}

/** Attempts of a delivery after number `after`, in order. No attempt starts before its delivery was made. */
export async function listAttempts(
  db: Db,
  tenant: string,
  delivery: string,
  createdAt: Date,
  after: number,
  limit: number,
): Promise<AttemptRow[]> {
  const result = await db.query({
    text: `select id, n, generation, started_at, duration_ms, status, class, phase, error, request_url, request_headers, request_bytes,
        head_bytes, response_headers, response_body, response_truncated, fresh_retry, decision, next_due_at,
        rule, own_due_at, retry_after_s
      from posthaste.attempts
      where delivery = $1 and n > $2 and tenant = $3 and started_at >= $4::timestamptz - interval '1 hour'
      order by n, started_at limit $5`,
    values: [delivery, after, tenant, createdAt, limit],
  });
  return result.rows;
}
