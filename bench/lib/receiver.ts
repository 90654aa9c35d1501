/**
 * The customers' side, in a process of its own: one cheap HTTP/1.1 server on a few ports, many endpoints by path
 * (`/<group>/<endpoint>`), a behaviour per group that may change at any time. Remembers every request: when, which
 * event, what was answered. Requests below /bare are only answered. Driven by bench/lib/bench.ts.
 */
import { writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { serve } from './child.ts';
import { nowMs } from './clock.ts';

/** How an endpoint answers. `limit`: so many 2xx a second, others get the status. `fail`: a share of requests does. */
export type Behaviour =
  | { kind: 'ok'; delayMs?: number }
  | { kind: 'status'; status: number; retryAfter?: number }
  | { kind: 'fail'; share: number; status: number }
  | { kind: 'limit'; perSecond: number; status: number; retryAfter?: number }
  /** Accepts the request and never answers. */
  | { kind: 'hang' }
  /** One byte of the head every 500 ms. */
  | { kind: 'trickle' }
  | { kind: 'reset' }
  /** Bytes that are not HTTP. */
  | { kind: 'garbage' };

export interface Listening {
  port: number;
  host?: string;
  tls?: { cert: string; key: string };
}

const OK = Buffer.from('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok');
const GARBAGE = Buffer.from('\x16\x03\x01\x02\x00not a word of HTTP\r\n\r\n');

const behaviours = new Map<string, Behaviour>();
const buckets = new Map<string, { tokens: number; at: number }>();
const servers = new Map<number, { server: Server; sockets: Set<Socket> }>();
const paths = new Map<string, number>();
let log = { at: [] as number[], status: [] as number[], path: [] as number[], id: [] as string[] };
let delivered = 0;
let requests = 0;
let connections = 0;
let marks: { count: number; resolve: (at: number) => void }[] = [];

function answer(status: number, retryAfter?: number): Buffer {
  const after = retryAfter === undefined ? '' : `retry-after: ${retryAfter}\r\n`;
  return Buffer.from(`HTTP/1.1 ${status} x\r\n${after}content-length: 0\r\n\r\n`);
}

function tokens(group: string, perSecond: number): boolean {
  const now = nowMs();
  const bucket = buckets.get(group) ?? { tokens: perSecond / 4, at: now };
  bucket.tokens = Math.min(perSecond / 4, bucket.tokens + ((now - bucket.at) / 1_000) * perSecond);
  bucket.at = now;
  buckets.set(group, bucket);
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

function note(path: string, id: string, status: number): void {
  let index = paths.get(path);
  if (index === undefined) {
    index = paths.size;
    paths.set(path, index);
  }
  const at = nowMs();
  log.at.push(at);
  log.status.push(status);
  log.path.push(index);
  log.id.push(id);
  requests++;
  if (status !== 200) return;
  delivered++;
  if (marks.length > 0 && delivered >= marks[0]!.count) {
    const reached = marks.filter((mark) => mark.count <= delivered);
    marks = marks.filter((mark) => mark.count > delivered);
    for (const mark of reached) mark.resolve(at);
  }
}

/** The whole request is in. */
function handle(socket: Socket, path: string, id: string): void {
  const group = path.slice(1, path.indexOf('/', 1));
  const how = behaviours.get(group);
  if (group === 'bare') {
    if (how?.kind === 'ok' && how.delayMs) setTimeout(() => socket.write(OK), how.delayMs);
    else socket.write(OK);
    return;
  }
  switch (how?.kind ?? 'ok') {
    case 'ok': {
      const delay = (how as { delayMs?: number } | undefined)?.delayMs ?? 0;
      note(path, id, 200);
      if (delay > 0) setTimeout(() => socket.write(OK), delay);
      else socket.write(OK);
      return;
    }
    case 'status': {
      const { status, retryAfter } = how as Extract<Behaviour, { kind: 'status' }>;
      note(path, id, status);
      socket.write(answer(status, retryAfter));
      return;
    }
    case 'fail': {
      const { share, status } = how as Extract<Behaviour, { kind: 'fail' }>;
      const failed = Math.random() < share;
      note(path, id, failed ? status : 200);
      socket.write(failed ? answer(status) : OK);
      return;
    }
    case 'limit': {
      const { perSecond, status, retryAfter } = how as Extract<Behaviour, { kind: 'limit' }>;
      const good = tokens(group, perSecond);
      note(path, id, good ? 200 : status);
      socket.write(good ? OK : answer(status, retryAfter));
      return;
    }
    case 'hang':
      note(path, id, 0);
      return;
    case 'trickle': {
      note(path, id, 0);
      let sent = 0;
      const timer = setInterval(() => socket.write(OK.subarray(sent, ++sent)), 500);
      socket.once('close', () => clearInterval(timer));
      return;
    }
    case 'reset':
      note(path, id, 0);
      socket.resetAndDestroy();
      return;
    case 'garbage':
      note(path, id, 0);
      socket.end(GARBAGE);
  }
}

/** Requests come one after the other on a connection; head and body may come in pieces. */
function accept(socket: Socket): void {
  connections++;
  let head = '';
  let left = 0; // bytes of the body still to come
  let path = '';
  let id = '';
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    if (left > 0) {
      left -= chunk.length;
      if (left <= 0) handle(socket, path, id);
      return;
    }
    head += chunk.toString('latin1');
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    path = head.slice(head.indexOf(' ') + 1, head.indexOf(' ', head.indexOf(' ') + 1));
    id = field(head, 'webhook-id: ');
    left = Number(field(head, 'content-length: ') || 0) - (head.length - end - 4);
    head = '';
    if (left <= 0) handle(socket, path, id);
  });
}

function field(head: string, name: string): string {
  const at = head.indexOf(name);
  return at < 0 ? '' : head.slice(at + name.length, head.indexOf('\r\n', at));
}

function listen({ port, host, tls }: Listening): Promise<number> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    accept(socket);
  };
  const server =
    tls === undefined ? createServer(keep) : createTlsServer({ ...tls, ALPNProtocols: ['http/1.1'] }, keep);
  server.on('tlsClientError', () => {});
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host: host ?? '127.0.0.1', backlog: 1_024 }, () => {
      const at = (server.address() as { port: number }).port;
      servers.set(at, { server, sockets });
      resolve(at);
    });
  });
}

serve({
  listen,
  /** Connections are refused from now on, until `listen` with the same port. */
  close(port: number) {
    const { server, sockets } = servers.get(port)!;
    servers.delete(port);
    for (const socket of sockets) socket.destroy();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  },
  set(groups: Record<string, Behaviour>) {
    for (const [group, behaviour] of Object.entries(groups)) behaviours.set(group, behaviour);
  },
  counts: () => ({ delivered, requests, connections }),
  /** When the count of 2xx answers reached `count`: milliseconds of clock.ts. */
  reached: (count: number) =>
    delivered >= count ? nowMs() : new Promise<number>((resolve) => insertMark({ count, resolve })),
  /** Writes one line per request: ms, status, path, event. */
  write(file: string) {
    const names = [...paths.keys()];
    const lines = log.at.map(
      (at, i) => `${at.toFixed(2)}\t${log.status[i]}\t${names[log.path[i]!]}\t${log.id[i]}`,
    );
    writeFileSync(file, lines.join('\n'));
  },
  clear() {
    log = { at: [], status: [], path: [], id: [] };
    paths.clear();
    behaviours.clear();
    buckets.clear();
    delivered = requests = connections = 0;
  },
});

function insertMark(mark: { count: number; resolve: (at: number) => void }): void {
  marks = [...marks, mark].sort((a, b) => a.count - b.count);
}
