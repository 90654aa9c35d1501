/** Raw TCP and TLS listeners on loopback whose every byte a test decides. */
import type { AddressInfo, Server, Socket } from 'node:net';
import { createServer } from 'node:net';
import type { TLSSocket, TlsOptions } from 'node:tls';
import { createServer as createTlsServer } from 'node:tls';

/** A running receiver. `await using` closes it with all its sockets. */
export interface Receiver extends AsyncDisposable {
  readonly port: number;
  /** Connections accepted so far. */
  readonly connections: () => number;
  /** Whole requests seen so far, as text. */
  readonly requests: string[];
  /** Resolves when nobody is connected any more. */
  readonly allClosed: () => Promise<void>;
  /** Cuts every open connection; the listener stays. */
  readonly cut: () => void;
}

/** Called once per connection that sent a whole request, and again for each further request on it. */
export type Respond = (socket: Socket, request: string, nth: number) => void;

/** Answers every request with these bytes. */
export const answer =
  (...parts: (string | Buffer)[]): Respond =>
  (socket) => {
    for (const part of parts) socket.write(part);
  };

/** 200 with a two-byte body. */
export const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';

/** A receiver that reads whole requests and leaves the rest to `respond`. */
export function receive(respond: Respond, host = '127.0.0.1', port = 0): Promise<Receiver> {
  return start(createServer(), 'connection', respond, undefined, host, port);
}

/** A receiver that does as told the moment somebody connects, whatever is sent. */
export function onConnect(act: (socket: Socket) => void, host = '127.0.0.1'): Promise<Receiver> {
  return start(createServer(), 'connection', undefined, act, host);
}

/** The same as receive() behind TLS. */
export function receiveTls(options: TlsOptions, respond: Respond, host = '127.0.0.1'): Promise<Receiver> {
  return start(createTlsServer(options), 'secureConnection', respond, undefined, host);
}

async function start(
  server: Server,
  event: 'connection' | 'secureConnection',
  respond: Respond | undefined,
  act: ((socket: Socket) => void) | undefined,
  host: string,
  port = 0,
): Promise<Receiver> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let connections = 0;
  let whenEmpty: (() => void)[] = [];
  server.on('tlsClientError', () => {});
  server.on('connection', (socket: Socket) => {
    connections++;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => {
      sockets.delete(socket);
      if (sockets.size > 0) return;
      for (const done of whenEmpty) done();
      whenEmpty = [];
    });
  });
  server.on(event, (socket: Socket | TLSSocket) => {
    socket.on('error', () => {});
    if (act) {
      act(socket);
      // Unread bytes would hide that the other side has closed.
      socket.resume();
    }
    if (respond) readRequests(socket, (request, nth) => respond(socket, request, nth), requests);
  });
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    requests,
    allClosed: () =>
      sockets.size === 0 ? Promise.resolve() : new Promise((resolve) => whenEmpty.push(resolve)),
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function readRequests(
  socket: Socket,
  each: (request: string, nth: number) => void,
  requests: string[],
): void {
  let text = '';
  let nth = 0;
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
    for (;;) {
      const end = text.indexOf('\r\n\r\n');
      const length = Number(/^content-length: (\d+)\r$/im.exec(text)?.[1] ?? 0);
      if (end < 0 || text.length < end + 4 + length) return;
      const request = text.slice(0, end + 4 + length);
      text = text.slice(end + 4 + length);
      requests.push(request);
      each(request, nth++);
    }
  });
}
