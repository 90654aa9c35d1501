/**
 * One connection to a receiver: a socket that we dialled ourselves, and an undici Client that speaks HTTP/1.1 on
 * it and nothing else. The Client never dials: asked for a second connection it gets an error, so no request can
 * slip onto a socket that was not judged. A link carries one request at a time. Called by pool.ts and attempt.ts.
 */
import type { Socket } from 'node:net';
import { Client } from 'undici';

// Never with a code that undici takes for recoverable (UND_ERR_SOCKET, UND_ERR_INFO): it would dial for ever.
class LinkGone extends Error {
  readonly code = 'ECONNRESET';
}

const KEEP_ALIVE_MS = 4_000;
const KEEP_ALIVE_MAX_MS = 10_000;
const RESPONSE_HEAD_MAX = 16 * 1024;
/** A socket was judged when it was dialled; it does not outlive that judgement for long. */
const MAX_AGE_MS = 60_000;
const MAX_REQUESTS = 1_000;

/** Owns its socket until destroy(). */
export class Link {
  readonly client: Client;
  readonly revision: number;
  readonly certificateRequested: boolean;
  /** Requests that got their response over this link. */
  served = 0;
  readonly #socket: Socket;
  readonly #expires: number;
  #handedOver = false;

  /** @param onClose called once when the socket has closed, whoever closed it. */
  constructor(
    origin: string,
    socket: Socket,
    revision: number,
    certificateRequested: boolean,
    onClose: (link: Link) => void,
  ) {
    this.revision = revision;
    this.certificateRequested = certificateRequested;
    this.#socket = socket;
    this.#expires = performance.now() + MAX_AGE_MS;
    socket.on('error', ignore);
    if (socket.closed) queueMicrotask(() => onClose(this));
    else socket.once('close', () => onClose(this));
    this.client = new Client(origin, {
      connect: (_options, callback) => {
        // Not at once: undici starts no request from within its own connect call.
        if (this.#handedOver) queueMicrotask(() => callback(new LinkGone(), null));
        else queueMicrotask(() => callback(null, socket));
        this.#handedOver = true;
      },
      pipelining: 1,
      allowH2: false,
      // The attempt has its own wall clock; these two would be restarted by every byte.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MAX_MS,
      maxHeaderSize: RESPONSE_HEAD_MAX,
    });
  }

  /**
   * May another request be written to it? Not while the last one is still going out: a receiver that answers early
   * may never read the rest.
   * @param now performance.now()
   */
  usable(now: number): boolean {
    const socket = this.#socket;
    return (
      !socket.destroyed && socket.writableLength === 0 && this.served < MAX_REQUESTS && now < this.#expires
    );
  }

  /** Closes the socket at once. Requests on it fail; nothing is flushed. */
  destroy(): void {
    this.#socket.destroy();
  }
}

function ignore(): void {}
