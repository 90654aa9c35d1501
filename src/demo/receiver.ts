/**
 * The customer of `npm start`'s first event: a small server on loopback that checks each signature as a receiver
 * should, and says in one line what came. Called by the `start` command.
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { VerificationError, verify } from '../receiver/verify.ts';

export interface DemoReceiverOptions {
  /** The endpoint's `whsec_…`. A function when the endpoint is created only after its URL is known. */
  secret: string | (() => string);
  port?: number;
  log: (line: string) => void;
}

export interface DemoReceiver {
  url: string;
  port: number;
  /** Resolves with the line of the first verified event, past or to come. */
  received(): Promise<string>;
  close(): Promise<void>;
}

const BODY_MAX = 17 * 1024 * 1024; // more than the largest event that can be configured

export async function startDemoReceiver(options: DemoReceiverOptions): Promise<DemoReceiver> {
  const first = Promise.withResolvers<string>();
  const server = createServer(async (request, response) => {
    try {
      const body = await readBody(request);
      const secret = typeof options.secret === 'string' ? options.secret : options.secret();
      const { id } = verify({ body, headers: request.headers, secret });
      const line = `received ${typeOf(body)} ${id} · signature verified · ${body.length} bytes`;
      options.log(line);
      first.resolve(line);
      response.writeHead(204).end();
    } catch (error) {
      const refused = error instanceof VerificationError;
      options.log(`refused a request: ${(error as Error).message}`);
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
    received: () => first.promise,
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
