/** A CONNECT proxy that tunnels to loopback or misbehaves, as a test wants. */
import type { Socket } from 'node:net';
import { connect } from 'node:net';
import { onConnect, type Receiver } from './listen.ts';

/** `tunnel` works; a text is sent as the whole answer; `silent` accepts and never answers; `close` hangs up. */
export type ProxyManner = 'tunnel' | 'silent' | 'close' | { readonly answer: string };

/** A running proxy. */
export interface TestProxy extends Receiver {
  /** Heads of all CONNECT requests. */
  readonly heads: string[];
}

/** Names are not resolved: every tunnel leads to the port on 127.0.0.1. */
export async function startProxy(manner: () => ProxyManner): Promise<TestProxy> {
  const heads: string[] = [];
  const receiver = await onConnect((socket) => {
    let text = '';
    const onData = (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (!text.includes('\r\n\r\n')) return;
      socket.off('data', onData);
      heads.push(text);
      serve(socket, text, manner());
    };
    socket.on('data', onData);
  });
  return { ...receiver, heads };
}

function serve(socket: Socket, head: string, manner: ProxyManner): void {
  if (manner === 'silent') return;
  if (manner === 'close') {
    socket.end();
  } else if (manner === 'tunnel') {
    const port = Number(/^CONNECT \S+:(\d+) /.exec(head)?.[1]);
    const upstream = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      socket.pipe(upstream).pipe(socket);
    });
    upstream.on('error', () => socket.destroy());
    upstream.on('close', () => socket.destroy());
    socket.on('close', () => upstream.destroy());
  } else {
    socket.end(manner.answer);
  }
}
