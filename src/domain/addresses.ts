/**
 * Which IP addresses a webhook may be sent to. Judged by bits, never by text, and everything that cannot be
 * parsed strictly is refused. Called by url-rules.ts for literals and by src/egress for every DNS answer and
 * for the peer of every connection. EGRESS_ALLOW, the exceptions of a deployment, is parsed here too.
 */

/** 16-bit words, most significant first: 2 for IPv4, 8 for IPv6. */
export interface IpAddress {
  readonly family: 4 | 6;
  readonly words: readonly number[];
}

/** One item of EGRESS_ALLOW. `ports`: one number, every port, or the usual web ports. */
export interface AllowItem extends IpAddress {
  readonly prefix: number;
  readonly ports: number | 'any' | 'web';
}

/** The exceptions of this deployment, from EGRESS_ALLOW; never of a tenant. */
export interface EgressAllow {
  readonly items: readonly AllowItem[];
}

/** No exceptions: https to public addresses only. */
export const ALLOW_NOTHING: EgressAllow = { items: [] };

/** What an EGRESS_ALLOW item without a port covers. */
const WEB_PORTS = [80, 443, 8443];

// IANA special-purpose registries, multicast, class E and, last, the Azure node service.
const V4_DENY = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '168.63.129.16/32',
].map(mustParseCidr);

// IPv6 is an allow list: global unicast, less the blocks inside it that embed or document something else.
const V6_GLOBAL = mustParseCidr('2000::/3');
const V6_DENY = ['2001::/23', '2001:db8::/32', '2002::/16', '2620:4f:8000::/48', '3fff::/20'].map(
  mustParseCidr,
);

/**
 * Parses one address, strictly: four decimal octets without leading zeros, or RFC 4291 text without a zone.
 * @returns null for everything else.
 */
export function parseIp(text: string): IpAddress | null {
  return text.includes(':') ? parseV6(text) : parseV4(text);
}

function parseV4(text: string): IpAddress | null {
  const parts = text.split('.');
  if (parts.length !== 4) return null;
  const octets: number[] = [];
  for (const part of parts) {
    if (!/^(?:0|[1-9]\d{0,2})$/.test(part)) return null;
    const octet = Number(part);
    if (octet > 255) return null;
    octets.push(octet);
  }
  const [a, b, c, d] = octets as [number, number, number, number];
  return { family: 4, words: [(a << 8) | b, (c << 8) | d] };
}

function parseV6(text: string): IpAddress | null {
  if (text.length > 45 || !/^[0-9a-fA-F:.]+$/.test(text)) return null;
  const halves = text.split('::');
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0] as string, halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1] as string, true) : [];
  if (!head || !tail) return null;
  if (halves.length === 1) return head.length === 8 ? { family: 6, words: head } : null;
  const gap = 8 - head.length - tail.length;
  if (gap < 1) return null;
  return { family: 6, words: [...head, ...new Array<number>(gap).fill(0), ...tail] };
}

/** Colon separated groups; only the last one may be a dotted IPv4 address. */
function parseGroups(text: string, mayEndDotted: boolean): number[] | null {
  if (text === '') return [];
  const words: number[] = [];
  const groups = text.split(':');
  for (let i = 0; i < groups.length; i++) {
    const group = groups[i] as string;
    if (group.includes('.')) {
      const v4 = mayEndDotted && i === groups.length - 1 ? parseV4(group) : null;
      if (!v4) return null;
      words.push(...v4.words);
    } else {
      if (!/^[0-9a-fA-F]{1,4}$/.test(group)) return null;
      words.push(Number.parseInt(group, 16));
    }
  }
  return words;
}

interface Cidr extends IpAddress {
  readonly prefix: number;
}

/** null when it is not `address/length`, when the length is out of range, or when bits are set below it. */
function parseCidr(text: string): Cidr | null {
  const match = /^([^/]+)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text);
  const ip = match && parseIp(match[1] as string);
  if (!ip) return null;
  const bits = ip.words.length * 16;
  const prefix = match[2] === undefined ? bits : Number(match[2]);
  if (prefix > bits) return null;
  const clean = ip.words.every((word, i) => (word & ~wordMask(prefix, i) & 0xffff) === 0);
  return clean ? { ...ip, prefix } : null;
}

function mustParseCidr(text: string): Cidr {
  const cidr = parseCidr(text);
  if (!cidr) throw new Error(`not a network: ${text}`);
  return cidr;
}

function wordMask(prefix: number, index: number): number {
  const bits = Math.min(Math.max(prefix - index * 16, 0), 16);
  return (0xffff << (16 - bits)) & 0xffff;
}

function contains(net: Cidr, ip: IpAddress): boolean {
  if (net.family !== ip.family) return false;
  for (let i = 0; i * 16 < net.prefix; i++) {
    if ((((net.words[i] as number) ^ (ip.words[i] as number)) & wordMask(net.prefix, i)) !== 0) return false;
  }
  return true;
}

/**
 * Is it an address of the public internet that can belong to a webhook receiver? Every form that carries an
 * IPv4 address inside an IPv6 one is refused, whatever it carries.
 * @param ip text of one address; anything else is not public.
 * Source: the IANA special-purpose address registries (RFC 6890 and its successors).
 */
export function isPublicAddress(ip: string): boolean {
  const parsed = parseIp(ip);
  if (!parsed) return false;
  if (parsed.family === 4) return !V4_DENY.some((net) => contains(net, parsed));
  if (!contains(V6_GLOBAL, parsed) || V6_DENY.some((net) => contains(net, parsed))) return false;
  // ISATAP (RFC 5214 section 6.1): interface id 0000:5efe or 0200:5efe, then an IPv4 address.
  const [, , , , w4, w5] = parsed.words;
  return !((w4 === 0 || w4 === 0x0200) && w5 === 0x5efe);
}

/**
 * Parses EGRESS_ALLOW: `cidr[:port|:*]`, comma separated; IPv6 as `[cidr]:port` or, without a port, bare.
 * A single address is a network of one. Without a port, 80, 443 and 8443 are meant.
 * @throws Error that names the bad item and shows the right form.
 */
export function parseEgressAllow(text: string): EgressAllow {
  const items: AllowItem[] = [];
  for (const raw of text.split(',')) {
    const item = raw.trim();
    if (item !== '') items.push(parseItem(item));
  }
  return { items };
}

function parseItem(item: string): AllowItem {
  const bad = (why: string) =>
    new Error(
      `EGRESS_ALLOW: "${item}" ${why}; write for example 10.0.0.0/8:8080, 127.0.0.1/32:* or [fd00::/8]:443`,
    );
  const bracketed = /^\[([^\]]*)\](?::(.+))?$/.exec(item);
  // A bare IPv6 network has more than one colon and no brackets, so it cannot carry a port.
  const plain =
    bracketed ?? (item.split(':').length > 2 ? [item, item, undefined] : /^([^:]*)(?::(.*))?$/.exec(item));
  if (!plain) throw bad('is not a network');
  const cidr = parseCidr(plain[1] as string);
  if (!cidr) throw bad('is not a network, or has bits set below its prefix');
  const portText = plain[2];
  if (portText === undefined) return { ...cidr, ports: 'web' };
  if (portText === '*') return { ...cidr, ports: 'any' };
  if (!/^[1-9]\d{0,4}$/.test(portText) || Number(portText) > 65_535) throw bad('has a port outside 1-65535');
  return { ...cidr, ports: Number(portText) };
}

function portMatches(item: AllowItem, port: number): boolean {
  return item.ports === 'any' || item.ports === port || (item.ports === 'web' && WEB_PORTS.includes(port));
}

/** Does any exception concern this port, whatever the address? Used before a name is resolved. */
export function allowsPort(port: number, allow: EgressAllow): boolean {
  return allow.items.some((item) => portMatches(item, port));
}

/**
 * Is this address and port covered by an exception of the deployment? (Public addresses are not looked at.)
 * @param ip text of one address; unparsable text is never allowed.
 */
export function addressAllowed(ip: string, port: number, allow: EgressAllow): boolean {
  if (allow.items.length === 0) return false;
  const parsed = parseIp(ip);
  return parsed !== null && allow.items.some((item) => portMatches(item, port) && contains(item, parsed));
}

/**
 * The one question asked before every dial: may this address be connected to?
 * @param allowOnly true when the URL itself needs an exception (plain http, another port, a private name): then
 *   a public address does not do.
 */
export function mayDial(ip: string, port: number, allowOnly: boolean, allow: EgressAllow): boolean {
  return addressAllowed(ip, port, allow) || (!allowOnly && isPublicAddress(ip));
}

/**
 * Is the other end of a connection one of the addresses that were judged? Compared by bits; a dual-stack socket may
 * print an IPv4 peer as IPv4-mapped IPv6.
 */
export function isJudgedPeer(peer: string, judged: readonly string[]): boolean {
  const bits = comparableAddress(peer);
  return bits !== null && judged.some((address) => comparableAddress(address) === bits);
}

/** Same bits, same text, with IPv4-mapped IPv6 unwrapped; null if unparsable. */
export function comparableAddress(text: string): string | null {
  const ip = parseIp(text);
  if (!ip) return null;
  const mapped =
    ip.family === 6 && ip.words[5] === 0xffff && ip.words.slice(0, 5).every((word) => word === 0);
  return (mapped ? ip.words.slice(6) : ip.words).map((word) => word.toString(16)).join(':');
}
