/**
 * The customer of `npm start`'s first event: a small server on loopback that checks each signature as a receiver
 * should, and says in one line what came. Called by the `start` command.
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { VerificationError, verify } from '../receiver/verify.ts';

export interface DemoReceiverOptions {
  /** The endpoint's `whsec_…`; left out when the endpoint is made only after the receiver's URL is known. */
  secret?: string;
  port?: number;
  log: { info(line: string): void };
}

export interface DemoReceiver {
  url: string;
  port: number;
  /** Verifies with this secret from now on. */
  useSecret(secret: string): void;
  /** Resolves with the line of event `id`, or of the first verified event; past or to come. */
  received(id?: string): Promise<string>;
  close(): Promise<void>;
}

const BODY_MAX = 17 * 1024 * 1024; // more than the largest event that can be configured

export async function startDemoReceiver(options: DemoReceiverOptions): Promise<DemoReceiver> {
  let secret = options.secret ?? '';
  const lines: { id: string; line: string }[] = [];
  const waiters = new Set<{ id: string | undefined; resolve(line: string): void }>();

  function remember(id: string, line: string): void {
    lines.push({ id, line });
    if (lines.length > 1_000) lines.shift();
    for (const waiter of waiters) {
      if (waiter.id !== undefined && waiter.id !== id) continue;
      waiters.delete(waiter);
      waiter.resolve(line);
    }
  }

  const server = createServer(async (request, response) => {
    try {
      const body = await readBody(request);
      const { id } = verify({ body, headers: request.headers, secret });
      const line = `${typeOf(body)} ${id} · signature verified · ${body.length} bytes`;
      options.log.info(line);
      remember(id, line);
      response.writeHead(204).end();
    } catch (error) {
      const refused = error instanceof VerificationError;
      options.log.info(`refused a request: ${(error as Error).message}`);
      response.writeHead(refused && error.code !== 'bad_secret' ? 401 : 500).end();
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(options.port ?? 0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/`,
    port,
    useSecret(other) {
      secret = other;
    },
    received(id) {
      const known = lines.find((entry) => id === undefined || entry.id === id);
      if (known !== undefined) return Promise.resolve(known.line);
      return new Promise((resolve) => waiters.add({ id, resolve }));
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_MAX) throw new Error(`the body is larger than ${BODY_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The event's type for the log line; a body that is not our envelope has none. */
function typeOf(body: Buffer): string {
  try {
    return String(JSON.parse(body.toString()).type ?? 'event');
  } catch {
    return 'event';
  }
}
