/**
 * One attempt from the queue to its result: gets a connection, writes the request, reads the status line, keeps a
 * prefix of the body, and whatever happens, settles exactly once within its deadline. It is also the undici
 * handler of its request, which saves the promises and closures of higher-level calls. Called by post.ts.
 * Times are performance.now() milliseconds unless said.
 */
import type { Dispatcher } from 'undici';
import type { OutcomeClass, Phase } from '../domain/classes.ts';
import { classifyFault, classifyStatus } from '../domain/classify.ts';
import { addChunk, type BodyPrefix, bodyText, emptyBody, storedBytes } from './body.ts';
import { errorCode } from './connect.ts';
import { Dial, type DialContext } from './dial.ts';
import { Link } from './link.ts';
import type { Pool, Pools, Waiter } from './pool.ts';
import type { PostInput, PostResult } from './post.ts';
import { explain, headerPairs, type ResponseHeaders, retryAfterOf } from './result.ts';
import type { Target } from './target.ts';
import { wasFrozen } from './timers.ts';

/** What all attempts of one egress share. */
export interface AttemptContext {
  readonly pools: Pools;
  readonly dial: DialContext;
  readonly running: Set<Attempt>;
  freshRetries: number;
}

/** After the status line the outcome is known; the body may take this much longer, never past the deadline. */
const BODY_MS = 5_000;
/** A warm socket that was already closed answers a write with its reset at once; later the receiver was at work. */
const STALE_MS = 500;

type Controller = Dispatcher.DispatchController;

/** One POST in flight. Owns a connection from useLink/openLink until it settles. */
export class Attempt implements Waiter, Dispatcher.DispatchHandler {
  settled = false;
  /** A reused link died under this attempt: the next one must be new. */
  fresh = false;
  /** The attempts that share our signal; we leave it when we settle. */
  signalGroup: Set<Attempt> | undefined;
  readonly #context: AttemptContext;
  readonly #input: PostInput;
  readonly #target: Target;
  readonly #pool: Pool;
  readonly #resolve: (result: PostResult) => void;
  readonly #headers: string[];
  readonly #headBytes: number;
  readonly #startedAt = Date.now();
  readonly #started = performance.now();
  #timer: NodeJS.Timeout;
  #phase: Phase = 'queued';
  /** The last dial, for its timings. */
  #dial: Dial | undefined;
  /** The same while it runs. */
  #dialling: Dial | undefined;
  #link: Link | undefined;
  #written = false;
  #writtenHere = false;
  #writtenAt = 0;
  #reused = false;
  #freshRetry = false;
  #sentAt = 0;
  #ttfbMs: number | null = null;
  #status: number | null = null;
  #responseHeaders: ResponseHeaders | undefined;
  #body: BodyPrefix | undefined;

  constructor(
    context: AttemptContext,
    input: PostInput,
    target: Target,
    pool: Pool,
    headers: string[],
    headBytes: number,
    resolve: (result: PostResult) => void,
  ) {
    this.#context = context;
    this.#input = input;
    this.#target = target;
    this.#pool = pool;
    this.#headers = headers;
    this.#headBytes = headBytes;
    this.#resolve = resolve;
    this.#timer = setTimeout(onDeadline, input.timeoutMs, this, performance.now() + input.timeoutMs);
  }

  start(): void {
    this.#context.running.add(this);
    this.#context.pools.enter(this.#pool, this, this.#input.revision, this.#input.connections);
  }

  /** Ends the attempt from outside. */
  cancel(): void {
    if (this.#status !== null) this.#settleByStatus(false);
    else this.#settle('cancelled', '');
  }

  /** `frozen`: this process could not run for a while, so nobody can say who was silent. */
  deadline(frozen: boolean): void {
    if (this.#status !== null) {
      this.#settleByStatus(false);
    } else if (this.#phase === 'queued') {
      this.#settle(this.#written ? 'reset_reused' : 'queue_timeout', '');
    } else if (frozen) {
      this.#settle('stalled', '');
    } else {
      // While name servers or the proxy are silent, nothing is known about the receiver.
      const phase = this.#dialling?.phase;
      const silent = phase === 'dns' ? 'dns_temporary' : phase === 'proxy' ? 'proxy_unavailable' : 'deadline';
      this.#settle(silent, '');
    }
  }

  useLink(link: Link): void {
    if (this.settled) {
      this.#context.pools.giveBack(link);
      return;
    }
    this.#reused = link.served > 0;
    this.#send(link);
  }

  openLink(): void {
    const { dial: context, pools } = this.#context;
    const dial = new Dial(context, this.#target, this.#input.tls, this.#pool.key);
    this.#dial = dial;
    this.#dialling = dial;
    this.#phase = 'dns';
    void dial.run().then((outcome) => {
      if (!outcome.ok) {
        pools.abandon(this.#pool);
        this.#dialling = undefined;
        if (!this.settled) {
          this.#phase = outcome.phase;
          this.#settle(outcome.class, outcome.code);
        }
        return;
      }
      const { origin } = this.#target;
      const { revision } = this.#input;
      const link = new Link(origin, outcome.socket, revision, outcome.certificateRequested, (closed) =>
        pools.closed(closed),
      );
      pools.adopt(this.#pool, link);
      this.#dialling = undefined;
      this.#reused = false;
      if (this.settled) link.destroy();
      else this.#send(link);
    });
  }

  #send(link: Link): void {
    this.#link = link;
    this.#writtenHere = false;
    this.#phase = 'queued';
    link.client.dispatch(
      { path: this.#target.path, method: 'POST', headers: this.#headers, body: this.#input.body },
      this,
    );
  }

  /** undici is about to write the head to the socket. */
  onRequestStart(controller: Controller): void {
    if (this.settled) {
      controller.abort(new Error('settled'));
      return;
    }
    const now = performance.now();
    const { startBefore } = this.#input;
    if (startBefore !== undefined && now > startBefore) {
      this.#settle(this.#written ? 'reset_reused' : 'not_started', '');
      controller.abort(new Error('too late'));
      return;
    }
    this.#phase = 'sent';
    this.#written = true;
    this.#writtenHere = true;
    this.#writtenAt = now;
    this.#sentAt = now;
  }

  /** The first byte of a response, interim ones included. */
  onResponseStarted(): void {
    this.#phase = 'headers';
  }

  onResponseStart(_controller: Controller, status: number, headers: ResponseHeaders): void {
    if (status < 200 || this.settled) return;
    const now = performance.now();
    this.#status = status;
    this.#phase = 'body';
    this.#ttfbMs = now - this.#sentAt;
    this.#responseHeaders = headers;
    if (now - this.#started + BODY_MS < this.#input.timeoutMs) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(onDeadline, BODY_MS, this, now + BODY_MS);
    }
  }

  onResponseData(_controller: Controller, chunk: Buffer): void {
    if (this.settled) return;
    this.#body ??= emptyBody();
    if (!addChunk(this.#body, chunk)) this.#settleByStatus(false);
  }

  onResponseEnd(): void {
    if (!this.settled) this.#settleByStatus(true);
  }

  onResponseError(_controller: Controller | null, error: Error): void {
    if (this.settled) return;
    if (this.#status !== null) {
      this.#settleByStatus(false);
      return;
    }
    const code = errorCode(error);
    const link = this.#link as Link;
    const unwritable = code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_NOT_SUPPORTED';
    if (!this.#writtenHere && !unwritable) {
      // The link died before a byte was written to it: a warm one is replaced, a new one was, in effect, never made.
      if (this.#reused) {
        this.#redial(link);
        return;
      }
      this.#phase = this.#target.secure ? 'tls' : 'tcp';
    } else if (unwritable) {
      this.#phase = 'sent';
    }
    const stale = this.#reused && this.#phase === 'sent' && performance.now() - this.#writtenAt < STALE_MS;
    const outcome = classifyFault({
      phase: this.#phase,
      code,
      name: faultName(error),
      staleSocket: stale,
      // Once it has served a request, the certificate question is settled.
      certificateRequested: link.certificateRequested && link.served === 0,
      clientCertificate: this.#input.tls?.cert !== undefined,
    });
    if (outcome === 'reset_reused' && !this.#freshRetry) {
      this.#freshRetry = true;
      this.#context.freshRetries++;
      this.#redial(link);
    } else {
      this.#settle(outcome, code);
    }
  }

  #redial(link: Link): void {
    link.destroy();
    this.#link = undefined;
    this.#phase = 'queued';
    this.fresh = true;
    this.#context.pools.enter(this.#pool, this, this.#input.revision, this.#input.connections);
  }

  #settleByStatus(complete: boolean): void {
    const outcome = classifyStatus(this.#status as number);
    const link = this.#link as Link;
    if (complete) {
      link.served++;
      this.#link = undefined;
      this.#finish(outcome, '', false);
      this.#context.pools.giveBack(link);
    } else {
      this.#finish(outcome, '', true);
    }
  }

  #settle(outcome: OutcomeClass, code: string): void {
    this.#finish(outcome, code, false);
  }

  #finish(outcome: OutcomeClass, code: string, bodyCut: boolean): void {
    this.settled = true;
    clearTimeout(this.#timer);
    this.#context.running.delete(this);
    this.signalGroup?.delete(this);
    const phase = this.#dialling?.phase ?? this.#phase;
    if (phase === 'queued') this.#context.pools.leave(this.#pool, this);
    this.#dialling?.cancel();
    this.#link?.destroy();
    this.#resolve(this.#result(outcome, phase, code, bodyCut));
  }

  #result(outcome: OutcomeClass, phase: Phase, code: string, bodyCut: boolean): PostResult {
    const dial = this.#dial;
    const prefix = this.#body;
    const responseBody = prefix ? storedBytes(prefix) : EMPTY;
    const truncated = bodyCut || (prefix !== undefined && prefix.total > prefix.stored);
    const headers = this.#responseHeaders;
    return {
      class: outcome,
      phase,
      written: this.#written,
      status: this.#status,
      startedAt: this.#startedAt,
      durationMs: performance.now() - this.#started,
      timings: {
        dnsMs: dial ? dial.dnsMs : null,
        connectMs: dial ? dial.connectMs : null,
        tlsMs: dial ? dial.tlsMs : null,
        ttfbMs: this.#ttfbMs,
      },
      responseHeaders: headerPairs(headers),
      responseBody,
      responseBodyText: bodyText(responseBody, truncated),
      responseTruncated: truncated,
      retryAfter: retryAfterOf(headers),
      headBytes: this.#headBytes,
      reusedSocket: this.#reused,
      freshRetry: this.#freshRetry,
      error: explain(outcome, phase, code, this.#status, this.#headBytes),
    };
  }
}

const EMPTY = Buffer.alloc(0);

/** undici reports interim and upgrade responses that nobody asked for as socket errors; they are parse errors. */
function faultName(error: Error): string {
  return error.message === 'bad response' || error.message === 'bad upgrade' ? 'HTTPParserError' : error.name;
}

/** After one more look at the sockets: a process that was stopped finds answers there that came in time. */
function onDeadline(attempt: Attempt, dueAt: number): void {
  const frozen = wasFrozen(dueAt);
  setImmediate(() => {
    if (!attempt.settled) attempt.deadline(frozen);
  });
}
