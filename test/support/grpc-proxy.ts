/** A gRPC proxy on loopback that counts calls by method: what a Temporal client or worker asks for, seen from outside. */
import {
  connect,
  constants,
  createServer,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { cleanUpLater } from './clean-up.ts';

export interface GrpcProxy {
  /** `host:port`, to be used in place of the server's. */
  address: string;
  /** Calls so far, by method name without its package. */
  calls: Map<string, number>;
}

const INTERNAL = new Set([constants.HTTP2_HEADER_STATUS]);

/** @param target `host:port` of a server without TLS. Closed after the file's tests. */
export async function startGrpcProxy(target: string): Promise<GrpcProxy> {
  const calls = new Map<string, number>();
  const upstream = connect(`http://${target}`);
  upstream.on('error', () => {});
  const sessions = new Set<Http2Session>();
  const server = createServer();
  server.on('session', (session) => {
    sessions.add(session);
    session.on('error', () => {}).once('close', () => sessions.delete(session));
  });
  server.on('stream', (stream, headers) => {
    const method = String(headers[':path']).split('/').at(-1)!;
    calls.set(method, (calls.get(method) ?? 0) + 1);
    forward(stream, headers);
  });

  function forward(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const { ':authority': _authority, ...rest } = headers;
    const request = upstream.request({ ...rest, ':authority': target });
    let trailers: IncomingHttpHeaders = {};
    stream.pipe(request);
    stream.on('error', () => request.close());
    stream.on('aborted', () => request.close(constants.NGHTTP2_CANCEL));
    request.on('error', () => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    request.on('trailers', (last) => {
      trailers = last;
    });
    request.on('response', (first, flags) => {
      if (stream.destroyed) return;
      // An answer of headers alone is a refusal: its status stands in them.
      if (flags & constants.NGHTTP2_FLAG_END_STREAM) {
        stream.respond(first, { endStream: true });
        return;
      }
      stream.on('wantTrailers', () => {
        const sent = Object.entries(trailers).filter(([name]) => !INTERNAL.has(name));
        stream.sendTrailers(Object.fromEntries(sent));
      });
      stream.respond(first, { waitForTrailers: true });
      request.pipe(stream);
    });
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUpLater(async () => {
    for (const session of sessions) session.destroy();
    upstream.destroy();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, calls };
}
