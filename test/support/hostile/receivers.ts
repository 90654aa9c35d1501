/**
 * Receivers that misbehave after the connection is made, with the class that one attempt to each must get. Used by the
 * tests of the egress alone and of the whole engine.
 */
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import type { OutcomeClass, Phase } from '../../../src/domain/classes.ts';
import { answer, OK, onConnect, type Receiver, type Respond, receive } from './listen.ts';

/** Sends the text every 20 ms until the connection ends. */
const drip =
  (text: string | Buffer, first = ''): Respond =>
  (socket) => {
    if (first) socket.write(first);
    const timer = setInterval(() => socket.write(text), 20);
    socket.on('close', () => clearInterval(timer));
  };

/** Writes as fast as the reader takes it. */
const flood =
  (first: string): Respond =>
  (socket) => {
    const block = Buffer.alloc(64 * 1024, 'x');
    const more = () => {
      while (!socket.destroyed && socket.write(block));
    };
    socket.on('drain', more);
    socket.write(first);
    more();
  };

export const reset = (socket: Socket) => socket.resetAndDestroy();
const responds = (respond: Respond) => () => receive(respond);

export interface HostileReceiver {
  readonly name: string;
  readonly receiver: () => Promise<Receiver>;
  readonly class: OutcomeClass;
  readonly phase: Phase;
  readonly status?: number;
  readonly text?: string | RegExp;
  readonly truncated?: boolean;
}

const deadline = (
  name: string,
  receiver: HostileReceiver['receiver'],
  phase: Phase = 'sent',
): HostileReceiver => ({
  name,
  receiver,
  class: 'deadline',
  phase,
});
const cut = (name: string, receiver: HostileReceiver['receiver'], phase: Phase): HostileReceiver => ({
  name,
  receiver,
  class: 'reset',
  phase,
});
const ok = (
  name: string,
  receiver: HostileReceiver['receiver'],
  text: HostileReceiver['text'] = 'ok',
  truncated = false,
): HostileReceiver => ({
  name,
  receiver,
  class: 'ok',
  phase: 'body',
  status: 200,
  text,
  truncated,
});
const protocol = (name: string, ...parts: string[]): HostileReceiver => ({
  name,
  receiver: responds(answer(...parts)),
  class: 'protocol',
  phase: 'headers',
});

export const HOSTILE_RECEIVERS: readonly HostileReceiver[] = [
  deadline('accepts and stays silent', () => onConnect(() => {})),
  deadline(
    'sends interim responses for ever',
    responds(drip('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n')),
    'headers',
  ),
  deadline(
    'sends its head one byte at a time',
    responds(drip('a', 'HTTP/1.1 200 OK\r\nx-slow: ')),
    'headers',
  ),
  ok(
    'sends its body one byte at a time',
    responds(drip('a', 'HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n')),
    /^a+$/,
    true,
  ),
  ok(
    'stops in the middle of the body',
    responds(answer('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok')),
    'ok',
    true,
  ),
  ok('sends an endless body', responds(flood('HTTP/1.1 200 OK\r\n\r\n')), /^x{16384}$/, true),
  ok(
    'announces and sends 1 GB',
    responds(flood('HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n')),
    /^x{16384}$/,
    true,
  ),
  ok(
    'claims gzip for plain text',
    responds(answer('HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok')),
  ),
  ok(
    'sends a gzip bomb',
    () => {
      const bomb = gzipSync(Buffer.alloc(10_000_000));
      return receive(
        answer(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`, bomb),
      );
    },
    /^.\ufffd/,
  ),
  ok(
    'sends NUL and invalid UTF-8',
    responds(
      answer('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n', Buffer.from([0x61, 0, 0xff, 0xc3, 0x62])),
    ),
    'a\ufffd\ufffdb',
  ),
  {
    ...ok(
      'sends a body with 204',
      responds(answer('HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello')),
      '',
    ),
    status: 204,
  },
  ok(
    'speaks HTTP/1.0 and ends the body by closing',
    responds((socket) => socket.end('HTTP/1.0 200 OK\r\n\r\nok')),
  ),
  ok(
    'sends interim responses, then the answer',
    responds(answer('HTTP/1.1 102 Processing\r\n\r\n', 'HTTP/1.1 103 Early Hints\r\n\r\n', OK)),
  ),
  ok(
    'sends more than it announced',
    responds(answer(`${OK}HTTP/1.1 500 Poison\r\ncontent-length: 0\r\n\r\n`)),
  ),
  ok(
    'closes in the middle of the body',
    responds((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok')),
    'ok',
    true,
  ),
  ok(
    'resets in the middle of the body',
    responds((socket) =>
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok', () => setTimeout(reset, 20, socket)),
    ),
    'ok',
    true,
  ),
  cut('closes as soon as somebody connects', () => onConnect((socket) => socket.end()), 'sent'),
  cut('resets after the request', responds(reset), 'sent'),
  cut(
    'closes after the request',
    responds((socket) => socket.end()),
    'sent',
  ),
  cut(
    'closes in the middle of the head',
    responds((socket) => socket.end('HTTP/1.1 200 OK\r\nx-a: b\r\n')),
    'headers',
  ),
  protocol('sends an unasked 100 Continue', 'HTTP/1.1 100 Continue\r\n\r\n', OK),
  protocol(
    'switches protocols',
    'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
  ),
  protocol('answers with garbage', '\u0016\u0003\u0001 SSH-2.0-OpenSSH\r\n'),
  protocol('puts NUL into a header', 'HTTP/1.1 200 OK\r\nx-a: a\0b\r\ncontent-length: 0\r\n\r\n'),
  protocol('sends two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok'),
  protocol(
    'sends length and chunked encoding',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
  ),
  {
    ...protocol('invents a status', 'HTTP/1.1 999 Whatever\r\ncontent-length: 0\r\n\r\n'),
    phase: 'body',
    status: 999,
  },
  {
    name: 'sends a response header of 100 KB',
    receiver: responds(answer(`HTTP/1.1 200 OK\r\nx-large: ${'x'.repeat(100_000)}\r\n\r\n`)),
    class: 'response_headers_too_large',
    phase: 'headers',
  },
  {
    name: 'redirects to a private address',
    receiver: responds(
      answer('HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n'),
    ),
    class: 'http_3xx',
    phase: 'body',
    status: 302,
  },
];
