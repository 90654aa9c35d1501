/**
 * One signed POST to a hostile network: the only way Posthaste touches a customer's server.
 * Called by the sending activities with a complete head and the exact body. Times are milliseconds unless said.
 */
import { networkInterfaces } from 'node:os';
import { LRUCache } from 'lru-cache';
import type { EgressAllow } from '../domain/addresses.ts';
import { comparableAddress } from '../domain/addresses.ts';
import type { OutcomeClass, Phase } from '../domain/classes.ts';
import { requestHeadBytes } from '../domain/headers.ts';
import { Attempt, type AttemptContext } from './attempt.ts';
import { Pools } from './pool.ts';
import { parseProxy } from './proxy.ts';
import { createResolver } from './resolver.ts';
import { refused } from './result.ts';
import { type SelfCheck, selfCheck } from './self-check.ts';
import { createTargets } from './target.ts';
import type { TlsProfile } from './tls.ts';

/** One attempt. */
export interface PostInput {
  readonly url: string;
  readonly tenant: string;
  readonly endpoint: string;
  /** Revision of the endpoint's configuration: a socket of another revision is never reused. */
  readonly revision: number;
  /** Complete, ordered, lower case. Only host, connection and content-length are added. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  /** Wall clock for everything: queueing, DNS, connecting, TLS, response head and body. */
  readonly timeoutMs: number;
  /** Parallel connections of the endpoint, at most; further posts queue inside their deadline. */
  readonly connections: number;
  readonly tls?: TlsProfile | undefined;
  /** performance.now() after which no request byte may be written: the result is then `not_started`. */
  readonly startBefore?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** How long each step took, failed or not; null when it was not reached or not needed (a reused socket). */
export interface Timings {
  readonly dnsMs: number | null;
  readonly connectMs: number | null;
  readonly tlsMs: number | null;
  /** From the written request to the response head. */
  readonly ttfbMs: number | null;
}

/** What became of the attempt. Every text is safe to show to the customer. */
export interface PostResult {
  readonly class: OutcomeClass;
  readonly phase: Phase;
  /** false: provably no byte of the request left us. */
  readonly written: boolean;
  readonly status: number | null;
  /** Epoch milliseconds. */
  readonly startedAt: number;
  readonly durationMs: number;
  readonly timings: Timings;
  readonly responseHeaders: [name: string, value: string][];
  /** The first 16 KiB at most. */
  readonly responseBody: Buffer;
  /** The same as text: UTF-8 with replacement characters, without NUL, cut at a character. */
  readonly responseBodyText: string;
  /** There was more than responseBody holds, or the body broke off. */
  readonly responseTruncated: boolean;
  readonly retryAfter: string | null;
  /** Size of our own request head, bytes. */
  readonly headBytes: number;
  readonly reusedSocket: boolean;
  /** A reused socket died under this request and it was repeated at once on a fresh one. */
  readonly freshRetry: boolean;
  /** Our own words; never an internal address. */
  readonly error: string | null;
}

/** Counters and gauges since the start. */
export interface EgressStats {
  readonly pools: number;
  readonly openSockets: number;
  readonly idleSockets: number;
  readonly queued: number;
  readonly posts: number;
  readonly connectionsOpened: number;
  readonly freshRetries: number;
  readonly dnsCached: number;
  readonly dnsQueries: number;
}

/** Owns every outgoing socket. */
export interface Egress {
  /** Never rejects for reasons of the network or the receiver; the reason is in the result. */
  post(input: PostInput): Promise<PostResult>;
  /** Whether our own way out works, by connecting to known-good URLs; 3 s at most. */
  check(urls: readonly string[]): Promise<SelfCheck>;
  /** Ends running posts as `cancelled` and closes every socket. */
  close(): Promise<void>;
  stats(): EgressStats;
}

/** How this deployment reaches the world. */
export interface EgressOptions {
  readonly allow: EgressAllow;
  /** CONNECT proxy, `http://host:port` or `https://…`, with optional user and password. */
  readonly proxy?: string | undefined;
  /** Name servers `address[:port]`; without them those of the system. */
  readonly dnsServers?: readonly string[] | undefined;
  /** Sockets at once, default 4,096. */
  readonly maxSockets?: number | undefined;
  /** For TCP and TLS together, default 5,000. */
  readonly connectTimeoutMs?: number | undefined;
  /** Public addresses of our own machines and load balancers, refused; default: those of the interfaces. */
  readonly ownAddresses?: readonly string[] | undefined;
}

/** Sockets at once in this process; further posts queue within their deadlines. */
const MAX_SOCKETS = 4_096;
const CONNECT_MS = 5_000;
const MAX_TLS_SESSIONS = 1_000;
/** A resumed session is not verified anew, so it must not outlive the verification for long. */
const TLS_SESSION_MS = 600_000;

/**
 * Makes the egress of a process. Environment proxies and global dispatchers have no effect on it. A change of
 * policy means a new egress: the old one takes its sockets with it.
 * @throws Error when the proxy URL or a name server cannot be parsed.
 */
export function createEgress(options: EgressOptions): Egress {
  const targets = createTargets(options.allow);
  const resolver = createResolver(options.dnsServers);
  const pools = new Pools({
    maxSockets: options.maxSockets ?? MAX_SOCKETS,
    maxColdIdle: 128,
    maxHotIdle: 2_000,
  });
  const context: AttemptContext = {
    pools,
    dial: {
      allow: options.allow,
      resolver,
      proxy: options.proxy ? parseProxy(options.proxy) : undefined,
      ownAddresses: options.ownAddresses ? comparable(options.ownAddresses) : interfaceAddresses(),
      connectTimeoutMs: options.connectTimeoutMs ?? CONNECT_MS,
      sessions: new LRUCache({ max: MAX_TLS_SESSIONS, ttl: TLS_SESSION_MS }),
    },
    running: new Set(),
    freshRetries: 0,
  };
  const listeners = createListeners();
  let posts = 0;
  let closed = false;

  return {
    post(input) {
      posts++;
      const target = targets(input.url);
      if (!target.ok) return Promise.resolve(refused(input, 'invalid_url', 'policy', target.reason));
      if (closed || input.signal?.aborted)
        return Promise.resolve(refused(input, 'cancelled', 'queued', null));
      const key = `${input.tenant}\n${input.endpoint}\n${input.tls?.id ?? ''}\n${target.origin}`;
      return new Promise((resolve) => {
        const headers = flatHeaders(input.headers);
        const headBytes = requestHeadBytes(target.path, target.authority, input.headers, input.body.length);
        const pool = pools.get(key, input.revision);
        const attempt = new Attempt(context, input, target, pool, headers, headBytes, resolve);
        if (input.signal) listeners.add(input.signal, attempt);
        attempt.start();
      });
    },
    check: (urls) => selfCheck(context.dial, targets, urls),
    async close() {
      closed = true;
      for (const attempt of context.running) attempt.cancel();
      pools.destroyAll();
      resolver.close();
    },
    stats() {
      const { opened, ...gauges } = pools.stats();
      const { cached, queries } = resolver.stats();
      const counters = { posts, connectionsOpened: opened, freshRetries: context.freshRetries };
      return { ...gauges, ...counters, dnsCached: cached, dnsQueries: queries };
    },
  };
}

function flatHeaders(headers: PostInput['headers']): string[] {
  const flat: string[] = [];
  for (let i = 0; i < headers.length; i++) {
    const [name, value] = headers[i] as readonly [string, string];
    flat.push(name, value);
  }
  return flat;
}

/** One listener per signal, however many attempts share it. */
function createListeners(): { add(signal: AbortSignal, attempt: Attempt): void } {
  const groups = new WeakMap<AbortSignal, Set<Attempt>>();
  return {
    add(signal, attempt) {
      let group = groups.get(signal);
      if (!group) {
        const members = new Set<Attempt>();
        group = members;
        groups.set(signal, members);
        signal.addEventListener('abort', () => {
          for (const member of members) if (!member.settled) member.cancel();
        });
      }
      group.add(attempt);
      attempt.signalGroup = group;
    },
  };
}

function comparable(addresses: readonly string[]): ReadonlySet<string> {
  return new Set(addresses.map((address) => comparableAddress(address) ?? address));
}

function interfaceAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return comparable(all.map((entry) => entry.address));
}
