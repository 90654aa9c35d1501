/**
 * A real HTTP server that plays the customer: answers as a test tells it, and remembers every request exactly as it
 * came. Tests wait for requests, never for time.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export interface ReceivedRequest {
  method: string;
  path: string;
  /** Lower-case names; several values of one name are joined as Node joins them. */
  headers: Record<string, string>;
  /** Name, value, name, value … exactly as received. */
  rawHeaders: string[];
  body: Buffer;
  /** Epoch milliseconds, when the whole request was in. */
  at: number;
  /** Requests being handled at that moment, this one included. */
  concurrent: number;
  /** 0 for the first request this receiver got. */
  n: number;
  /** The header that names the event. */
  webhookId: string;
}

export interface Answer {
  status?: number;
  headers?: Record<string, string>;
  body?: string | Buffer;
  /** Wait this long before answering. */
  delayMs?: number;
  /** Wait for this before answering. */
  until?: Promise<unknown>;
  /** Close the connection without an answer. */
  destroy?: boolean;
}

export interface TestReceiver {
  url: string;
  port: number;
  requests: ReceivedRequest[];
  /** The most requests ever handled at once. */
  highWater(): number;
  /** Replaces the answer for requests from now on. */
  respond(answer: Responder): void;
  /** Resolves with all requests when there are at least `n`. */
  waitFor(n: number, timeoutMs?: number): Promise<ReceivedRequest[]>;
  /** Resolves with the first request, past or to come, that matches. */
  waitForRequest(
    matches: (request: ReceivedRequest) => boolean,
    timeoutMs?: number,
  ): Promise<ReceivedRequest>;
  close(): Promise<void>;
}

/** @param n 0 for the first request this receiver got. */
export type Responder = (request: ReceivedRequest, n: number) => Answer | Promise<Answer>;

interface Waiter {
  check(): boolean;
}

export async function startReceiver(
  options: { respond?: Responder; port?: number } = {},
): Promise<TestReceiver> {
  const requests: ReceivedRequest[] = [];
  const waiters = new Set<Waiter>();
  let respond: Responder = options.respond ?? (() => ({ status: 200 }));
  let handling = 0;
  let highWater = 0;

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    handling += 1;
    highWater = Math.max(highWater, handling);
    response.once('close', () => {
      handling -= 1;
    });
    const received = await read(request, requests.length, handling);
    received.n = requests.push(received) - 1;
    for (const waiter of waiters) if (waiter.check()) waiters.delete(waiter);
    const answer = await respond(received, received.n);
    await answer.until;
    if (answer.delayMs) await delay(answer.delayMs);
    if (answer.destroy) response.destroy();
    else response.writeHead(answer.status ?? 200, answer.headers).end(answer.body ?? '');
  }

  const server = createServer((request, response) => {
    // A request that broke off before it was whole is the sender's doing: close, as a real receiver does.
    handle(request, response).catch(() => response.destroy());
  });
  server.keepAliveTimeout = 30_000;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(options.port ?? 0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;

  function wait<T>(attempt: () => T | undefined, what: string, timeoutMs: number): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const waiter: Waiter = {
      check() {
        const value = attempt();
        if (value === undefined) return false;
        clearTimeout(timer);
        resolve(value);
        return true;
      },
    };
    const timer = setTimeout(() => {
      waiters.delete(waiter);
      reject(new Error(`No ${what} within ${timeoutMs} ms; the receiver got ${requests.length} requests.`));
    }, timeoutMs);
    if (!waiter.check()) waiters.add(waiter);
    return promise;
  }

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    requests,
    highWater: () => highWater,
    respond(answer) {
      respond = answer;
    },
    waitFor: (n, timeoutMs = 45_000) =>
      wait(() => (requests.length >= n ? requests : undefined), `${n} requests`, timeoutMs),
    waitForRequest: (matches, timeoutMs = 45_000) =>
      wait(() => requests.find(matches), 'matching request', timeoutMs),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function read(request: IncomingMessage, n: number, concurrent: number): Promise<ReceivedRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const headers = Object.fromEntries(Object.entries(request.headers).map(([k, v]) => [k, String(v)]));
  return {
    method: request.method ?? '',
    path: request.url ?? '',
    headers,
    rawHeaders: request.rawHeaders,
    body: Buffer.concat(chunks),
    at: Date.now(),
    concurrent,
    n,
    webhookId: headers['webhook-id'] ?? '',
  };
}
