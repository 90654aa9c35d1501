/**
 * The CONNECT step through an egress proxy such as Smokescreen, done on our own socket so that the proxy's answer
 * is seen in full: its refusals, its faults and its silence are told apart from those of the receiver.
 * Called by dial.ts. Times are milliseconds.
 */
import type { Socket } from 'node:net';
import { connect as connectTcp, isIP } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import type { OutcomeClass } from '../domain/classes.ts';
import { classifyProxy } from '../domain/classify.ts';
import type { DnsResolver } from './resolver.ts';
import type { Target } from './target.ts';
import { PeerTimer } from './timers.ts';

/** A parsed EGRESS_PROXY. */
export interface ProxyServer {
  readonly host: string;
  readonly port: number;
  readonly secure: boolean;
  /** Value of proxy-authorization, or null. */
  readonly authorization: string | null;
  /** `name`: the proxy resolves and decides. `address`: it gets the address that we resolved and judged. */
  readonly connectTo: 'name' | 'address';
}

/** The proxy answered CONNECT with something else than 200, or is itself at fault. */
export class ProxyRefusal extends Error {
  readonly class: OutcomeClass;

  constructor(outcome: OutcomeClass) {
    super(outcome);
    this.class = outcome;
  }
}

const REACH_MS = 2_000;
// Smokescreen gives a connection 10 s and DNS 5 s of them; past that it is the proxy that hangs.
const ANSWER_MS = 10_000;
const HEAD_MAX = 8 * 1024;

/**
 * Parses EGRESS_PROXY: `http://[user:password@]host[:port]` or `https://…`; `?connect=address` sends the judged
 * address instead of the name.
 * @throws Error that shows the right form.
 */
export function parseProxy(text: string): ProxyServer {
  const url = URL.parse(text);
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.pathname !== '/') {
    throw new Error('EGRESS_PROXY is not a proxy URL; write for example http://smokescreen.example.net:4750');
  }
  const secure = url.protocol === 'https:';
  const credentials = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
    secure,
    authorization: credentials === ':' ? null : `Basic ${Buffer.from(credentials).toString('base64')}`,
    connectTo: url.searchParams.get('connect') === 'address' ? 'address' : 'name',
  };
}

/**
 * A tunnel to the target.
 * @param addresses the judged addresses of the target; may be empty with `connectTo: 'name'`.
 * @param own is told of each socket as it is made, so that it can be destroyed at the deadline.
 * @throws ProxyRefusal with the class that the proxy's behaviour means.
 */
export async function openTunnel(
  proxy: ProxyServer,
  resolver: DnsResolver,
  target: Target,
  addresses: readonly string[],
  own: (socket: Socket) => void,
): Promise<Socket> {
  const host = await proxyAddress(proxy, resolver);
  const raw = connectTcp({ host, port: proxy.port, noDelay: true });
  own(raw);
  await ready(raw, 'connect');
  let socket: Socket = raw;
  if (proxy.secure) {
    const name = isIP(proxy.host) ? {} : { servername: proxy.host };
    socket = connectTls({ socket: raw, host: proxy.host, ...name, rejectUnauthorized: true });
    own(socket);
    await ready(socket, 'secureConnect');
  }
  const to = proxy.connectTo === 'address' ? (addresses[0] as string) : target.host;
  const authority = `${to.includes(':') ? `[${to}]` : to}:${target.port}`;
  const auth = proxy.authorization ? `proxy-authorization: ${proxy.authorization}\r\n` : '';
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n${auth}\r\n`, 'latin1');
  const answer = await readHead(socket);
  if (answer.status !== 200) throw new ProxyRefusal(classifyProxy(answer.status, answer.smokescreenError));
  return socket;
}

/** Whether the proxy takes connections; nothing is asked of it. */
export async function reachProxy(proxy: ProxyServer, resolver: DnsResolver, ms: number): Promise<boolean> {
  let socket: Socket | undefined;
  const late = delay(ms, null, { ref: false });
  try {
    const host = await Promise.race([proxyAddress(proxy, resolver), late]);
    if (host === null) return false;
    socket = connectTcp({ host, port: proxy.port });
    return (await Promise.race([ready(socket, 'connect').then(() => true), late])) === true;
  } catch {
    return false;
  } finally {
    socket?.destroy();
  }
}

async function proxyAddress(proxy: ProxyServer, resolver: DnsResolver): Promise<string> {
  if (isIP(proxy.host)) return proxy.host;
  const answer = await resolver.resolve(proxy.host);
  if (!answer.ok) throw new ProxyRefusal('proxy_unavailable');
  return answer.addresses[0] as string;
}

function ready(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = new PeerTimer(REACH_MS, () => socket.destroy(new ProxyRefusal('proxy_unavailable')));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      timer.clear();
      reject(error);
    });
    socket.once('close', () => {
      timer.clear();
      reject(new ProxyRefusal('proxy_unavailable'));
    });
    socket.once(event, () => {
      timer.clear();
      resolve();
    });
  });
}

interface ConnectAnswer {
  readonly status: number;
  readonly smokescreenError: string | null;
}

/** Reads exactly the answer to CONNECT; what follows it already belongs to the receiver and is put back. */
function readHead(socket: Socket): Promise<ConnectAnswer> {
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    const fail = () => finish(() => reject(new ProxyRefusal('proxy_unavailable')));
    const timer = new PeerTimer(ANSWER_MS, fail);
    function finish(then: () => void): void {
      timer.clear();
      socket.off('readable', onReadable);
      socket.off('end', fail);
      socket.off('close', fail);
      then();
    }
    function onReadable(): void {
      for (let chunk = socket.read(); chunk !== null; chunk = socket.read()) {
        head = Buffer.concat([head, chunk]);
        const end = head.indexOf('\r\n\r\n');
        if (end >= 0) {
          const answer = parseHead(head.toString('latin1', 0, end));
          const rest = head.subarray(end + 4);
          finish(() => {
            if (rest.length > 0) socket.unshift(rest);
            if (answer) resolve(answer);
            else reject(new ProxyRefusal('proxy_unavailable'));
          });
          return;
        }
        if (head.length > HEAD_MAX) {
          fail();
          return;
        }
      }
    }
    socket.on('readable', onReadable);
    socket.once('end', fail);
    socket.once('close', fail);
    onReadable();
  });
}

function parseHead(head: string): ConnectAnswer | null {
  const status = /^HTTP\/1\.[01] (\d{3})(?: |\r?\n|$)/.exec(head);
  if (!status) return null;
  const reason = /^x-smokescreen-error:[ \t]*(.*)$/im.exec(head);
  return { status: Number(status[1]), smokescreenError: reason?.[1]?.trim() ?? null };
}
