/**
 * Reads a request's body within a limit, whatever the client claims about it. Called by dispatch.ts and events.ts.
 * Behind @hono/node-server the bytes are taken from Node's own stream: the detour over a web stream costs as much
 * as the rest of an event's way in.
 */
import type { IncomingMessage } from 'node:http';
import type { Context } from 'hono';
import { type ProblemCode, ProblemError } from '../errors.ts';

/** The whole body. Compressed bodies are refused: inflating them would undo the limit. */
export async function readBody(
  ctx: Context,
  maxBytes: number,
  tooLarge: ProblemCode = 'body_too_large',
): Promise<Buffer> {
  const encoding = ctx.req.header('content-encoding');
  if (encoding !== undefined && !/^\s*(?:identity)?\s*$/i.test(encoding)) {
    throw new ProblemError(
      'unsupported_encoding',
      `content-encoding ${encoding.slice(0, 40)} is not accepted`,
    );
  }
  const refuse = () => tooLargeProblem(tooLarge, maxBytes);
  if (Number(ctx.req.header('content-length')) > maxBytes) throw refuse();
  const incoming = (ctx.env as { incoming?: IncomingMessage } | undefined)?.incoming;
  return incoming === undefined
    ? readWeb(ctx.req.raw, maxBytes, refuse)
    : readNode(incoming, maxBytes, refuse);
}

export function tooLargeProblem(code: ProblemCode, maxBytes: number): ProblemError {
  // The rest of the body is not worth reading, so the connection ends with the answer.
  return new ProblemError(code, `at most ${maxBytes} bytes are accepted`, {
    headers: { connection: 'close' },
  });
}

function readNode(incoming: IncomingMessage, maxBytes: number, refuse: () => Error): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const done = (error: Error | null) => {
      incoming.off('data', onData).off('end', onEnd).off('error', onBroken).off('close', onBroken);
      if (error !== null) reject(error);
      else resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) done(refuse());
      else chunks.push(chunk);
    };
    const onEnd = () => done(null);
    const onBroken = () => done(new ProblemError('body_broken', 'the connection ended before the body did'));
    incoming.on('data', onData).on('end', onEnd).on('error', onBroken).on('close', onBroken);
    if (incoming.readableEnded) onEnd();
    else if (incoming.destroyed) onBroken();
  });
}

async function readWeb(request: Request, maxBytes: number, refuse: () => Error): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  if (request.body === null) return Buffer.alloc(0);
  for await (const chunk of request.body) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw refuse();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, bytes);
}
