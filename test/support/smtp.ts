/** A real SMTP server on loopback that keeps what it was given, and refuses whom a test tells it to refuse. */
import { SMTPServer } from 'smtp-server';
import { cleanUpLater } from './clean-up.ts';
import { until } from './engine.ts';

export interface ReceivedMail {
  from: string;
  to: string[];
  raw: string;
  /** Unfolded header lines, lower-case names. */
  headers: [name: string, value: string][];
  text: string;
  html: string;
}

export interface TestSmtp {
  url: string;
  port: number;
  mails: ReceivedMail[];
  /** SMTP status for a recipient; null takes the mail. */
  refuse(answer: (address: string) => number | null): void;
  waitFor(n: number): Promise<ReceivedMail[]>;
  close(): Promise<void>;
}

export async function startSmtp(port = 0): Promise<TestSmtp> {
  const mails: ReceivedMail[] = [];
  let refuse: (address: string) => number | null = () => null;
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    logger: false,
    onRcptTo({ address }, _session, done) {
      const status = refuse(address);
      done(status === null ? null : Object.assign(new Error('not here'), { responseCode: status }));
    },
    onData(stream, session, done) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope;
        const raw = Buffer.concat(chunks).toString('latin1');
        mails.push({
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map(({ address }) => address),
          raw,
          headers: headersOf(raw),
          text: partOf(raw, 'text/plain'),
          html: partOf(raw, 'text/html'),
        });
        done();
      });
    },
  });
  server.on('error', () => {}); // clients that break off
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const bound = (server.server.address() as { port: number }).port;
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= new Promise((resolve) => server.close(() => resolve()));
    return closed;
  };
  cleanUpLater(close);
  return {
    url: `smtp://127.0.0.1:${bound}`,
    port: bound,
    mails,
    refuse(answer) {
      refuse = answer;
    },
    waitFor: (n) =>
      until(
        async () => mails,
        (all) => all.length >= n,
      ),
    close,
  };
}

function headersOf(raw: string): [string, string][] {
  const head = raw.slice(0, raw.indexOf('\r\n\r\n')).replaceAll(/\r\n[ \t]+/g, ' ');
  return head.split('\r\n').map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
}

/** The decoded part of a multipart/alternative mail. */
function partOf(raw: string, type: string): string {
  const boundary = /boundary="([^"]+)"/.exec(raw)?.[1];
  const part = raw
    .split(`--${boundary}`)
    .find((each) => each.toLowerCase().includes(`content-type: ${type}`));
  if (part === undefined) return '';
  const body = part.slice(part.indexOf('\r\n\r\n') + 4).replace(/\r\n$/, '');
  if (/content-transfer-encoding: base64/i.test(part)) return Buffer.from(body, 'base64').toString();
  const bytes = body
    .replaceAll('=\r\n', '')
    .replaceAll(/=([0-9A-F]{2})/g, (_all, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString('utf8').replaceAll('\r\n', '\n');
}
