/**
 * The API on a socket. Also answers what never becomes a request (bad HTTP, too slow, too large a head) with a
 * problem document. Called by src/main.ts and the tests.
 */
import { createServer, type Server, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import type { Config } from '../config.ts';
import { purgeIdempotencyKeys } from '../db/idempotency.ts';
import { purgeExpiredSecrets } from '../db/secrets.ts';
import { ProblemError } from '../errors.ts';
import { newId } from '../ids.ts';
import type { Log } from '../log.ts';
import { ensureAdminKey } from './auth.ts';
import type { ApiDeps } from './deps.ts';
import { problemResponse } from './problem.ts';
import { type Api, createApi } from './server.ts';

export interface Listening {
  readonly server: Server;
  readonly url: string;
  readonly port: number;
  /** Stops accepting, lets requests under way finish, and resolves when all are answered and committed. */
  close(): Promise<void>;
}

const SWEEP_MS = 20;
const CLOSE_WITHIN_MS = 10_000;
const PURGE_EVERY_MS = 5 * 60_000;

/** The API role: the admin key registered, the app on its socket, what is out of date purged now and then. */
export async function startApi(
  deps: Omit<ApiDeps, 'config'> & { readonly config: Config },
): Promise<{ url: string; close(): Promise<void> }> {
  const { config, db, log } = deps;
  const { masterKeys } = config;
  if (masterKeys === undefined) throw new Error('The api role needs POSTHASTE_MASTER_KEYS.');
  if (config.adminKey !== undefined) await ensureAdminKey(db, config.adminKey);
  const api = createApi({ ...deps, config: { ...config, masterKeys } });
  const listening = await listen(api, { host: config.host, port: config.port, log });
  const timer = setInterval(() => {
    Promise.all([purgeExpiredSecrets(db), purgeIdempotencyKeys(db)]).catch((error: unknown) =>
      log.warn({ err: error }, 'a purge failed; the next one makes up for it'),
    );
  }, PURGE_EVERY_MS);
  timer.unref();
  return {
    url: listening.url,
    async close() {
      clearInterval(timer);
      await listening.close();
    },
  };
}

export async function listen(
  api: Api,
  options: { host: string; port: number; log: Log },
): Promise<Listening> {
  const { host, port, log } = options;
  const listener = getRequestListener(api.app.fetch, {
    errorHandler: (error) => problemResponse(asMalformed(error), newId('req'), log),
  });
  const server = createServer(
    { requestTimeout: 30_000, headersTimeout: 10_000, keepAliveTimeout: 65_000, requireHostHeader: false },
    (request, response) => {
      // A client that says no host is old or terse; which host it means never matters here.
      request.headers.host ??= 'localhost';
      void listener(request, response);
    },
  );
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => refuse(error, socket, log));
  await new Promise<void>((resolve, reject) => {
    const fail = (error: NodeJS.ErrnoException): void =>
      reject(
        error.code === 'EADDRINUSE'
          ? new Error(`port ${port} is taken: set PORT to another, or end who has it`)
          : error,
      );
    server.once('error', fail).listen({ host, port }, () => {
      server.off('error', fail);
      resolve();
    });
  });
  const address = server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return {
    server,
    url: `http://${name}:${address.port}`,
    port: address.port,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // A connection whose last answer is out is idle again; without this it would live as long as its client likes.
      const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
      const enough = setTimeout(() => server.closeAllConnections(), CLOSE_WITHIN_MS);
      await closed;
      clearInterval(sweep);
      clearTimeout(enough);
      await api.close();
    },
  };
}

/** What Node's server hands over as errors of the request target or the host is bad input. */
function asMalformed(error: unknown): unknown {
  if (error instanceof Error && error.name === 'RequestError') {
    return new ProblemError('malformed_request', 'the request target or the host header is malformed');
  }
  return error;
}

const CLIENT_ERRORS: Record<string, 'head_too_large' | 'request_timeout'> = {
  HPE_HEADER_OVERFLOW: 'head_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

async function refuse(error: NodeJS.ErrnoException, socket: Duplex, log: Log): Promise<void> {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const code = CLIENT_ERRORS[error.code ?? ''] ?? 'malformed_request';
  const response = problemResponse(
    new ProblemError(code, 'the request was not understood'),
    newId('req'),
    log,
  );
  const body = await response.text();
  const head = [`HTTP/1.1 ${response.status} ${STATUS_CODES[response.status]}`, 'connection: close'];
  response.headers.forEach((value, name) => {
    head.push(`${name}: ${value}`);
  });
  socket.end(`${head.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}
