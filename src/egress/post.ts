/**
 * One signed POST to a hostile network: the only way Posthaste touches a customer's server.
 * Called by the sending activities with a complete head and the exact body. Times are milliseconds unless said.
 */
import type { EgressAllow } from '../domain/addresses.ts';
import type { OutcomeClass, Phase } from '../domain/classes.ts';
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

/** How long each step took; null when the step did not take place (a reused socket, a failure before it). */
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
}

/** Makes the one egress of a process. */
export function createEgress(_options: EgressOptions): Egress {
  throw new Error('not built yet');
}
