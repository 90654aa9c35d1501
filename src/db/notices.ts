/** Mail about endpoints' health that is due (migrations/functions/notices.sql), and what became of it. */
import type { Db } from './pool.ts';

export interface DueNotice {
  id: number;
  kind: string;
  at: Date;
  facts: {
    reason?: string;
    disabledReason?: string | null;
    sinceMs?: number | null;
    untilMs?: number | null;
    lastStatus?: number | null;
    lastClass?: string | null;
    held?: number;
    host?: string | null;
  };
  tries: number; // this one included
  endpoint: string;
  tenant: string;
  tenant_name: string | null;
  addresses: string[]; // still to be written to
  expired: boolean; // too old: it is settled, nothing is to be sent
}

/** Takes due mail for `leaseMs`; whoever stops meanwhile leaves it to be taken again after that. */
export async function takeNotices(
  db: Db,
  shards: readonly number[],
  leaseMs: number,
  giveUpMs: number,
  limit: number,
): Promise<DueNotice[]> {
  const result = await db.query({
    name: 'take_notices',
    text: `select * from posthaste.take_notices($1, $2 * interval '1 millisecond', $3 * interval '1 millisecond', $4)`,
    values: [shards, leaseMs, giveUpMs, limit],
  });
  return result.rows;
}

/** One address is done with: written to, or refused for good. Renews the lease. */
export async function markNotice(
  db: Db,
  id: number,
  address: string,
  how: 'sent' | 'refused',
  leaseMs: number,
): Promise<void> {
  await db.query({
    name: `mark_notice_${how}`,
    text: `update posthaste.notices set ${how === 'sent' ? 'sent_to = sent_to' : 'refused = refused'} || $2::text,
        due_at = clock_timestamp() + $3 * interval '1 millisecond' where id = $1`,
    values: [id, address, leaseMs],
  });
}

/** @param retryMs until the next try; null: every address is done with. */
export async function settleNotice(db: Db, id: number, retryMs: number | null): Promise<void> {
  await db.query({
    name: 'settle_notice',
    text: `update posthaste.notices set due_at = coalesce(clock_timestamp() + $2 * interval '1 millisecond', 'infinity') where id = $1`,
    values: [id, retryMs],
  });
}
