/**
 * A hint between processes that events were committed. Only API processes send it, after their commit and at most
 * every 20 ms; never a producer's transaction, since NOTIFY serialises commits. A lost hint costs one poll interval.
 */
import pg from 'pg';
import type { Db } from './pool.ts';

const CHANNEL = 'posthaste_relay';

/**
 * The outbox has rows; a delivery is due now (a resend); the health step has news; a workflow (by id) should look at
 * its row.
 */
export type Hint = 'events' | 'work' | 'health' | `wake:${string}`;

export async function notify(db: Db, hint: Hint): Promise<void> {
  await db.query('select pg_notify($1, $2)', [CHANNEL, hint]);
}

/** Calls back for every hint; reconnects by itself. Without a session of its own (PgBouncer) it stays silent. */
export function listen(databaseUrl: string, onHint: (hint: Hint) => void): { close(): Promise<void> } {
  let closed = false;
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  const connect = async (): Promise<void> => {
    const next = new pg.Client({
      connectionString: databaseUrl,
      application_name: 'posthaste listen',
      keepAlive: true,
    });
    next.on('notification', (message) => onHint(message.payload as Hint));
    next.on('error', () => {});
    next.on('end', () => {
      if (!closed) timer = setTimeout(() => void connect(), 1_000);
    });
    client = next;
    try {
      await next.connect();
      await next.query(`listen ${CHANNEL}`);
    } catch {
      await next.end().catch(() => {});
      if (!closed) {
        clearTimeout(timer);
        timer = setTimeout(() => void connect(), 1_000);
      }
    }
  };
  void connect();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      await client?.end().catch(() => {});
    },
  };
}
