/** The connection pool, and the type parsers that every statement relies on. Only src/db may import pg. */
import pg from 'pg';

// bigint columns are sequence numbers, tokens and counts: far below 2^53. Versions of events, which a producer may
// choose freely, are read as text.
const parsers = new pg.TypeOverrides();
parsers.setTypeParser(20, Number);
const TIMESTAMPTZ = 1184;
const anyTimestamp = parsers.getTypeParser(TIMESTAMPTZ, 'text') as unknown as (text: string) => Date;
parsers.setTypeParser(TIMESTAMPTZ, parseTimestamp);

/** `2026-12-01 01:44:21.123456+00` by place: a row has up to five of them, and pg's pattern takes 2 µs for four. */
export function parseTimestamp(text: string): Date {
  const end = text.length - 3;
  if (
    end < 19 ||
    end > 26 ||
    text.charCodeAt(0) === ZERO ||
    text.charCodeAt(4) !== DASH ||
    !text.endsWith('+00')
  )
    return anyTimestamp(text);
  let ms = 0;
  for (let at = 20, unit = 100; at < end && unit >= 1; at++, unit /= 10) ms += digit(text, at) * unit;
  return new Date(
    Date.UTC(
      digits(text, 0) * 100 + digits(text, 2),
      digits(text, 5) - 1,
      digits(text, 8),
      digits(text, 11),
      digits(text, 14),
      digits(text, 17),
      ms,
    ),
  );
}

const DASH = 45;
const ZERO = 48;
const digit = (text: string, at: number): number => text.charCodeAt(at) - ZERO;
const digits = (text: string, at: number): number => digit(text, at) * 10 + digit(text, at + 1);

/** Longer than any statement of ours; shorter than the grace after which another process takes over. */
const QUERY_TIMEOUT_MS = 12_000;

export type Pool = pg.Pool;
export type Client = pg.PoolClient;
export type Db = Pool | Client;

export interface PoolOptions {
  max?: number;
  applicationName?: string;
  onError?: (error: Error) => void;
}

/** A pool whose broken idle connections are reported, not thrown. */
export function createPool(connectionString: string, options: PoolOptions = {}): Pool {
  const pool = new pg.Pool({
    connectionString,
    max: options.max ?? 10,
    application_name: options.applicationName ?? 'posthaste',
    types: parsers,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    // A host that vanished answers nothing: without this a query would hang for as long as TCP is patient.
    query_timeout: QUERY_TIMEOUT_MS,
    // No start-up parameters: PgBouncer refuses those it does not know.
  });
  pool.on('error', (error) => options.onError?.(error));
  return pool;
}

/** Runs `work` in one transaction on one connection; rolls back when it throws. */
export async function withTransaction<T>(pool: Pool, work: (client: Client) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  // A connection that dies between two statements says so by an event, which would end the process if nobody heard it.
  const died = (error: Error): void => {
    broken = error;
  };
  client.on('error', died);
  try {
    // A transaction never waits on JavaScript for long; a stuck one must not hold locks.
    await client.query('begin; set local idle_in_transaction_session_timeout = 2000');
    const result = await work(client);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch((rollbackError: Error) => {
      broken = rollbackError;
    });
    throw error;
  } finally {
    client.off('error', died);
    client.release(broken);
  }
}

/** True for errors that mean "PostgreSQL can't be reached or is restarting": try again later, nothing is wrong. */
export function isUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = (error as { code?: string }).code ?? '';
  // 08 connection, 57P0 shutting down, 53 out of resources, 25006 a standby after a failover, 58 its disk, 25P03 idle.
  if (/^(08|57P0|53|58|25006|25P0)/.test(code)) return true;
  if (
    /^E(CONNREFUSED|CONNRESET|CONNABORTED|PIPE|TIMEDOUT|NOTFOUND|AI_AGAIN|HOSTUNREACH|HOSTDOWN|NETUNREACH|NETDOWN|NOENT)$/.test(
      code,
    )
  )
    return true;
  return /Connection terminated|connection timeout|Query read timeout|timeout exceeded when trying to connect|not queryable|Client was closed/i.test(
    error.message,
  );
}
