/**
 * The logger of every role: JSON lines through pino, secrets removed, Temporal's own messages in the same stream.
 * Called by main.ts; everybody else is handed a `Log`.
 */
import type { LogLevel, LogMetadata, Logger as TemporalLogger } from '@temporalio/common';
import { type DestinationStream, destination, type Logger, pino } from 'pino';

export type Log = Logger;

/** Fields that may hold a secret, wherever they are: pino's `*.x` reaches one level down only, and not the top. */
const SECRET_FIELDS = [
  'secret',
  'secrets',
  'password',
  'authorization',
  'apiKey',
  'adminKey',
  'masterKeys',
  'databaseUrl',
  'DATABASE_URL',
  'DATABASE_DIRECT_URL',
  'POSTHASTE_ADMIN_KEY',
  'POSTHASTE_MASTER_KEYS',
  'EGRESS_PROXY',
  'SMTP_URL',
  'smtpUrl',
  'TEMPORAL_API_KEY',
];
const redact = {
  paths: SECRET_FIELDS.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
  censor: '[hidden]',
};

/** Facts of a library's error that help; its other fields may be whole sockets and clients, with their secrets. */
const ERROR_FACTS = [
  'code',
  'errno',
  'syscall',
  'address',
  'port',
  'detail',
  'hint',
  'where',
  'schema',
  'table',
  'constraint',
];

function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return error;
  const facts: Record<string, unknown> = { type: error.name, message: error.message };
  for (const name of ERROR_FACTS) {
    const value = (error as unknown as Record<string, unknown>)[name];
    if (typeof value === 'string' || typeof value === 'number') facts[name] = value;
  }
  if (error.cause !== undefined && depth < 3) facts.cause = describeError(error.cause, depth + 1);
  return { ...facts, stack: error.stack };
}

export interface LogOptions {
  level: string;
  /** A file to append to instead of standard output. */
  file?: string;
  /** For tests. */
  stream?: DestinationStream;
  /** Added to every line, such as the role. */
  fields?: Record<string, unknown>;
}

export function createLog(options: LogOptions): Log {
  const { level, file, stream, fields = {} } = options;
  return pino(
    {
      level,
      base: fields,
      redact,
      serializers: { err: (error: unknown) => describeError(error) },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    // Synchronous: a killed process must not take its last lines along.
    stream ??
      destination({ ...(file === undefined ? { dest: 1 } : { dest: file, mkdir: true }), sync: true }),
  );
}

/** Lets Temporal's runtime, client and worker write to our log, marked with `source`. */
export function temporalLogger(log: Log): TemporalLogger {
  const child = log.child({ source: 'temporal' });
  const write = (level: LogLevel, message: string, meta: LogMetadata = {}) => {
    const name = level.toLowerCase() as 'trace' | 'debug' | 'info' | 'warn' | 'error';
    // Core hands over its time in nanoseconds as a bigint, which JSON can't carry; pino writes a time anyway.
    const {
      timestampNanos: _,
      error,
      ...rest
    } = meta as LogMetadata & { timestampNanos?: bigint; error?: unknown };
    child[name](error === undefined ? rest : { ...rest, err: error }, message);
  };
  return {
    log: write,
    trace: (message, meta) => write('TRACE', message, meta),
    debug: (message, meta) => write('DEBUG', message, meta),
    info: (message, meta) => write('INFO', message, meta),
    warn: (message, meta) => write(isExpected(message, meta) ? 'DEBUG' : 'WARN', message, meta),
    error: (message, meta) => write('ERROR', message, meta),
  };
}

/** Meant so: the lanes' workers run activities only, and a dead letter ends its workflow as failed. */
function isExpected(message: string, meta: LogMetadata | undefined): boolean {
  if (message.startsWith('No workflows registered')) return true;
  return (
    message.startsWith('Workflow failed') &&
    (meta?.error as { type?: string } | undefined)?.type === 'DeadLettered'
  );
}
