/**
 * What an endpoint URL may look like. The raw string is judged first, because the URL parser repairs silently
 * what an attacker wants repaired (tabs, backslashes, odd spellings of addresses). Called by the API when a URL
 * is saved and by src/egress again before it is used; the DNS answer is judged separately (addresses.ts).
 */
import type { EgressAllow } from './addresses.ts';
import { addressAllowed, allowsPort, isPublicAddress, parseIp } from './addresses.ts';

/** The canonical URL and what the dial needs to know, or a sentence for the customer. */
export type UrlCheck =
  | {
      readonly ok: true;
      /** Store and use this; never parse it with another parser. */
      readonly href: string;
      /** Lower case, punycode; IPv6 literals keep their brackets. */
      readonly host: string;
      readonly port: number;
      readonly secure: boolean;
      /** The host as an address without brackets; null for a name. */
      readonly literal: string | null;
      /** The URL needs an exception of EGRESS_ALLOW: every address must be covered by one. */
      readonly allowOnly: boolean;
    }
  | { readonly ok: false; readonly reason: string };

/** Longest URL, characters. */
export const URL_MAX = 2048;
/** Ports that need no exception. */
export const PUBLIC_PORTS: readonly number[] = [443, 8443];

const NAME_MAX = 253;
const LABEL_MAX = 63;
// Names that never lead to a public receiver (RFC 6761, RFC 6762, RFC 9476, and habits of private networks).
const PRIVATE_TLDS = new Set(
  (
    'localhost local internal localdomain lan home corp intranet private svc consul onion invalid test example ' +
    'alt arpa'
  ).split(' '),
);

const refuse = (reason: string): UrlCheck => ({ ok: false, reason });

/**
 * Judges one raw URL.
 * @param raw exactly what the customer typed.
 * @param allow the exceptions of the deployment; they can permit plain http, other ports, private names and
 *   literal private addresses, but no odd spelling.
 */
export function checkUrl(raw: string, allow: EgressAllow): UrlCheck {
  if (raw.length > URL_MAX) return refuse(`the URL is longer than ${URL_MAX} characters`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  if (/[\u0000-\u0020\u007f-\u00a0\\]/.test(raw) || !raw.isWellFormed()) {
    return refuse('the URL contains a space, a backslash or a control character; percent-encode it');
  }
  if (raw.includes('#')) return refuse('the URL has a fragment (#…), which is never sent; remove it');
  const parts = /^(https?):\/\/([^/?]+)/i.exec(raw);
  if (!parts) return refuse('the URL must start with https:// and a host name');
  const secure = (parts[1] as string).length === 5;
  const authority = parts[2] as string;
  if (authority.includes('@'))
    return refuse('the URL carries a user name or password; use a custom header instead');
  if (authority.includes('%'))
    return refuse('the host contains a percent sign; write it in plain characters');
  const split = /^(\[[^[\]]*\]|[^:[\]]+)(?::([1-9]\d{0,4}))?$/.exec(authority);
  if (!split) return refuse('the host or the port of the URL is malformed');
  const port = split[2] === undefined ? (secure ? 443 : 80) : Number(split[2]);
  if (port > 65_535) return refuse('the port of the URL is above 65535');
  const parsed = URL.parse(raw);
  if (!parsed) return refuse('the URL cannot be parsed');
  return checkHost(split[1] as string, parsed, port, secure, allow);
}

function checkHost(
  rawHost: string,
  parsed: URL,
  port: number,
  secure: boolean,
  allow: EgressAllow,
): UrlCheck {
  const host = parsed.hostname;
  const literal = parseIp(host.startsWith('[') ? host.slice(1, -1) : host)
    ? host.replace(/^\[|\]$/g, '')
    : null;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the ASCII range
  const ascii = /^[\u0000-\u007f]+$/.test(rawHost);
  if (ascii ? rawHost.toLowerCase() !== host : literal !== null) {
    return refuse('the host is not written in its plain form');
  }
  const usual = secure && PUBLIC_PORTS.includes(port);
  const answer = { ok: true, href: parsed.href, host, port, secure, literal } as const;
  if (literal !== null) {
    if (addressAllowed(literal, port, allow)) return { ...answer, allowOnly: true };
    if (!isPublicAddress(literal)) return refuse('the host is not a public address');
    return usual ? { ...answer, allowOnly: false } : refuse(unusual(secure, port));
  }
  const broken = brokenName(host);
  if (broken) return refuse(broken);
  const privateName = isPrivateName(host);
  if (usual && !privateName) return { ...answer, allowOnly: false };
  if (allowsPort(port, allow)) return { ...answer, allowOnly: true };
  return refuse(privateName ? 'the host is not a public name' : unusual(secure, port));
}

function unusual(secure: boolean, port: number): string {
  return secure ? `port ${port} is not allowed; use 443 or 8443` : 'the URL must use https';
}

function brokenName(host: string): string | null {
  if (host.length > NAME_MAX) return `the host name is longer than ${NAME_MAX} characters`;
  if (host.endsWith('.')) return 'the host name ends with a dot; remove it';
  const labels = host.split('.');
  for (const label of labels) {
    if (label === '') return 'the host name has an empty label';
    if (label.length > LABEL_MAX) return `a label of the host name is longer than ${LABEL_MAX} characters`;
    if (!/^[a-z0-9_-]+$/.test(label))
      return 'the host name contains a character that is not allowed in names';
  }
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) as string))
    return 'the last label of the host name is a number';
  return null;
}

function isPrivateName(host: string): boolean {
  const dot = host.lastIndexOf('.');
  return dot < 0 || PRIVATE_TLDS.has(host.slice(dot + 1));
}
