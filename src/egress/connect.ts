/**
 * Waiting for sockets, and what they can be asked: the small parts that dial.ts is made of. Milliseconds.
 */
import type { LookupAddress } from 'node:dns';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { PeerTimer } from './timers.ts';

/** A failure of ours with a code like those of the system. */
export class DialError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

/** Time for TCP and TLS together. */
export class Budget {
  readonly #totalMs: number;
  #end: number;

  constructor(totalMs: number) {
    this.#totalMs = totalMs;
    this.#end = performance.now() + totalMs;
  }

  restart(): void {
    this.#end = performance.now() + this.#totalMs;
  }

  left(): number {
    return Math.max(1, this.#end - performance.now());
  }
}

/** Resolves with the event, rejects with the socket's error, its closing, or the code given for lateness. */
export function settled(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  ms: number,
  lateCode: string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = new PeerTimer(ms, () => socket.destroy(new DialError(lateCode)));
    // Stays: an error after the hand-over is told by undici, and must never be uncaught.
    socket.on('error', (error) => {
      timer.clear();
      reject(error);
    });
    socket.once('close', () => {
      timer.clear();
      reject(new DialError('ECONNRESET'));
    });
    socket.once(event, () => {
      timer.clear();
      resolve();
    });
  });
}

/** A lookup that answers with what was judged, so that no second resolution takes place. */
export function answerWith(addresses: readonly string[]) {
  const all = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
  return (_host: string, _options: unknown, callback: (error: null, all: LookupAddress[]) => void): void => {
    callback(null, all);
  };
}

/**
 * A client sees signature algorithms of its peer only in a CertificateRequest (RFC 8446 section 4.3.2), so their
 * presence tells that the server wants a certificate, even when the handshake then fails.
 */
export function askedForCertificate(socket: TLSSocket): boolean {
  try {
    return socket.getSharedSigalgs().length > 0;
  } catch {
    return false;
  }
}

/** The code of an error; connecting to several addresses wraps the errors of each. */
export function errorCode(error: unknown): string {
  if (!(error instanceof Error)) return '';
  const { code } = error as NodeJS.ErrnoException;
  if (typeof code === 'string') return code;
  if (error instanceof AggregateError) return errorCode(error.errors[0]);
  return error.cause === undefined ? '' : errorCode(error.cause);
}
