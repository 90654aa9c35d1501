/**
 * From a target to a connected socket: resolve, judge every address, connect, check the peer, tunnel through the
 * proxy if there is one, shake hands. Nothing is dialled that was not judged in the same breath.
 * Called by attempt.ts for every new connection. Times are milliseconds.
 */
import type { Socket } from 'node:net';
import { connect as connectTcp } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { connect as connectTls } from 'node:tls';
import type { LRUCache } from 'lru-cache';
import type { EgressAllow } from '../domain/addresses.ts';
import { comparableAddress, isJudgedPeer, mayDial } from '../domain/addresses.ts';
import type { OutcomeClass, Phase } from '../domain/classes.ts';
import { classifyFault } from '../domain/classify.ts';
import { answerWith, askedForCertificate, Budget, DialError, errorCode, settled } from './connect.ts';
import type { ProxyServer } from './proxy.ts';
import { openTunnel, ProxyRefusal } from './proxy.ts';
import type { DnsResolver } from './resolver.ts';
import type { Target } from './target.ts';
import type { TlsProfile } from './tls.ts';
import { secureContext, TlsProfileError } from './tls.ts';

/** What all dials of one egress share. */
export interface DialContext {
  readonly allow: EgressAllow;
  readonly resolver: DnsResolver;
  readonly proxy: ProxyServer | undefined;
  /** Addresses of this very machine, comparable form: a delivery to ourselves would loop. */
  readonly ownAddresses: ReadonlySet<string>;
  readonly connectTimeoutMs: number;
  /** Last TLS session per pool key, so that a resumption never crosses tenants or profiles. */
  readonly sessions: LRUCache<string, Buffer>;
}

/** A socket ready for the request, or the class of the failure. `code` is safe to show. */
export type DialOutcome =
  | { readonly ok: true; readonly socket: Socket; readonly certificateRequested: boolean }
  | { readonly ok: false; readonly class: OutcomeClass; readonly phase: Phase; readonly code: string };

/** Node drops each address but the last after this long; its default of 250 ms fails slow but healthy hosts. */
const NEXT_ADDRESS_MS = 1_000;

/** One connection being made. It owns the socket until the outcome is handed over. */
export class Dial {
  phase: Phase = 'dns';
  dnsMs: number | null = null;
  connectMs: number | null = null;
  tlsMs: number | null = null;
  readonly #context: DialContext;
  readonly #target: Target;
  readonly #profile: TlsProfile | undefined;
  readonly #sessionKey: string;
  #socket: Socket | undefined;
  #cancelled = false;
  #since = performance.now();
  #done = false;
  #certificateRequested = false;

  constructor(context: DialContext, target: Target, profile: TlsProfile | undefined, sessionKey: string) {
    this.#context = context;
    this.#target = target;
    this.#profile = profile;
    this.#sessionKey = sessionKey;
  }

  /** Never rejects. After cancel() the outcome is of no interest and nothing stays open. */
  async run(): Promise<DialOutcome> {
    try {
      const socket = await this.#open();
      this.#done = true;
      return { ok: true, socket, certificateRequested: this.#certificateRequested };
    } catch (error) {
      this.#socket?.destroy();
      return this.#failure(error);
    }
  }

  /** Stops it. A socket that was handed over is no longer its business. */
  cancel(): void {
    if (this.#done) return;
    this.#stopClock();
    this.#cancelled = true;
    this.#socket?.destroy();
  }

  /** Begins a step. */
  #enter(phase: Phase): void {
    this.phase = phase;
    this.#since = performance.now();
  }

  /** Notes how long the step took, once. */
  #stopClock(): void {
    const ms = performance.now() - this.#since;
    if (this.phase === 'dns') this.dnsMs ??= ms;
    else if (this.phase === 'tls') this.tlsMs ??= ms;
    else this.connectMs ??= ms;
  }

  #failure(error: unknown): DialOutcome {
    if (!this.#cancelled) this.#stopClock();
    const { phase } = this;
    if (error instanceof Blocked) return { ok: false, class: 'blocked_address', phase, code: '' };
    if (error instanceof ProxyRefusal) return { ok: false, class: error.class, phase, code: '' };
    if (error instanceof TlsProfileError) return { ok: false, class: 'local', phase, code: '' };
    const code = errorCode(error);
    const fault = {
      phase,
      code,
      name: '',
      staleSocket: false,
      certificateRequested: this.#certificateRequested,
      clientCertificate: this.#profile?.cert !== undefined,
    };
    return { ok: false, class: classifyFault(fault), phase, code };
  }

  async #open(): Promise<Socket> {
    const { proxy } = this.#context;
    const addresses = await this.#judgedAddresses();
    if (this.#cancelled) throw new DialError('ECANCELLED');
    const budget = new Budget(this.#context.connectTimeoutMs);
    let socket: Socket;
    if (proxy) {
      this.#enter('proxy');
      socket = await openTunnel(proxy, this.#context.resolver, this.#target, addresses, (raw) =>
        this.#own(raw),
      );
      this.#stopClock();
      budget.restart();
    } else {
      this.#enter('tcp');
      socket = await this.#connect(addresses, budget);
      this.#stopClock();
    }
    return this.#target.secure ? await this.#shakeHands(socket, budget) : socket;
  }

  /** Every address the host has, each one judged; one refused address refuses the host. */
  async #judgedAddresses(): Promise<readonly string[]> {
    const { literal, host, port, allowOnly } = this.#target;
    let addresses: readonly string[];
    if (literal !== null) {
      addresses = [literal];
    } else {
      const answer = await this.#context.resolver.resolve(host);
      this.#stopClock();
      if (!answer.ok) {
        // Behind a proxy our view of DNS is only advice: the proxy resolves and decides.
        if (this.#context.proxy?.connectTo === 'name') return [];
        throw new DialError(answer.code);
      }
      addresses = answer.addresses;
    }
    for (const address of addresses) {
      if (!mayDial(address, port, allowOnly, this.#context.allow)) throw new Blocked();
      if (!allowOnly && this.#context.ownAddresses.has(comparableAddress(address) ?? '')) throw new Blocked();
    }
    return addresses;
  }

  #own(socket: Socket): void {
    this.#socket = socket;
    if (this.#cancelled) socket.destroy();
  }

  async #connect(addresses: readonly string[], budget: Budget): Promise<Socket> {
    const socket = connectTcp({
      host: addresses[0] as string,
      port: this.#target.port,
      noDelay: true,
      autoSelectFamily: addresses.length > 1,
      autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS,
      ...(addresses.length > 1 ? { host: this.#target.host, lookup: answerWith(addresses) } : {}),
    });
    this.#own(socket);
    await settled(socket, 'connect', budget.left(), 'ETIMEDOUT');
    // The resolver or the system may have surprises: what counts is who is at the other end.
    if (socket.remoteAddress === undefined) throw new DialError('ECONNRESET');
    if (!isJudgedPeer(socket.remoteAddress, addresses)) throw new Blocked();
    return socket;
  }

  async #shakeHands(raw: Socket, budget: Budget): Promise<Socket> {
    this.#enter('tls');
    const { host, literal } = this.#target;
    const session = this.#context.sessions.get(this.#sessionKey);
    const socket: TLSSocket = connectTls({
      socket: raw,
      host: literal ?? host,
      ...(literal === null ? { servername: host } : {}),
      secureContext: secureContext(this.#profile),
      ALPNProtocols: ['http/1.1'],
      // Said aloud, because the default can be switched off by an environment variable.
      rejectUnauthorized: true,
      ...(session ? { session } : {}),
    });
    this.#own(socket);
    socket.on('session', (ticket: Buffer) => this.#context.sessions.set(this.#sessionKey, ticket));
    // A socket that is destroyed no longer knows what the server asked for.
    const { destroy } = socket;
    socket.destroy = (error) => {
      this.#certificateRequested ||= askedForCertificate(socket);
      socket.destroy = destroy;
      return destroy.call(socket, error);
    };
    try {
      await settled(socket, 'secureConnect', budget.left(), 'ERR_TLS_HANDSHAKE_TIMEOUT');
      this.#certificateRequested = askedForCertificate(socket);
    } finally {
      socket.destroy = destroy;
    }
    this.#stopClock();
    return socket;
  }
}

class Blocked extends Error {}
