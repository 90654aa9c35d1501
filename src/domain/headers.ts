/**
 * The request head: which headers are ours, which a customer may add, and how large it all gets. The smallest
 * common limit in front of receivers is 8 KiB for the whole head, and every proxy on their side adds to it, so
 * ours stays within 4 KiB. Called by the API on write and by the sender per attempt. Sizes are bytes; all header
 * text is ASCII, so characters and bytes are the same.
 */

/** Our whole request head, at most. */
export const HEAD_MAX = 4096;
/** Custom headers of an endpoint: how many, and all of them together with `: ` and line ends. */
export const CUSTOM_MAX_COUNT = 20;
export const CUSTOM_MAX_BYTES = 2048;
/** One custom header value. */
export const CUSTOM_MAX_VALUE = 1024;
/** Signatures in one header at most; each secret adds one. */
export const MAX_SIGNING_SECRETS = 5;

/** Complete and in wire order: what PostInput.headers takes. */
export type HeaderList = [name: string, value: string][];

// Hop-by-hop and framing (RFC 9110 section 7.6.1), what we set ourselves, cookies, and what claims to come from a proxy.
const FORBIDDEN = new Set(
  (
    'host connection keep-alive te trailer transfer-encoding upgrade expect http2-settings user-agent accept-encoding ' +
    'cookie cookie2 set-cookie set-cookie2 forwarded via x-real-ip true-client-ip client-ip cf-connecting-ip ' +
    'fastly-client-ip x-client-ip x-cluster-client-ip x-original-url x-rewrite-url x-http-method x-http-method-override ' +
    'x-method-override traceparent tracestate baggage range date'
  ).split(' '),
);
const FORBIDDEN_PREFIXES = ['content-', 'webhook-', 'proxy-', 'x-forwarded-', 'posthaste-', 'sec-'];

/** Which header is wrong and what to do about it. `field` is the name as given. */
export type HeaderCheck =
  | { readonly ok: true }
  | { readonly ok: false; readonly field: string; readonly reason: string };

/**
 * Judges the custom headers of an endpoint. `authorization` is allowed. Names may not contain `_` or `.`, which
 * nginx drops silently.
 */
export function checkCustomHeaders(headers: Readonly<Record<string, string>>): HeaderCheck {
  const names = Object.keys(headers);
  const seen = new Set<string>();
  let bytes = 0;
  for (const field of names) {
    const reason = badHeader(field, headers[field], seen);
    if (reason) return { ok: false, field, reason };
    seen.add(field.toLowerCase());
    bytes += lineBytes(field, headers[field] as string);
    if (seen.size > CUSTOM_MAX_COUNT) {
      return { ok: false, field, reason: `an endpoint may have at most ${CUSTOM_MAX_COUNT} custom headers` };
    }
    if (bytes > CUSTOM_MAX_BYTES) {
      return {
        ok: false,
        field,
        reason: `custom headers may have at most ${CUSTOM_MAX_BYTES} bytes together`,
      };
    }
  }
  return { ok: true };
}

function badHeader(field: string, value: unknown, seen: ReadonlySet<string>): string | null {
  const name = field.toLowerCase();
  if (!/^[a-z][a-z0-9-]{0,63}$/.test(name)) {
    return 'a header name has 1 to 64 letters, digits and hyphens and starts with a letter';
  }
  if (seen.has(name)) return 'the header is given twice; names are compared without case';
  if (FORBIDDEN.has(name) || FORBIDDEN_PREFIXES.some((prefix) => name.startsWith(prefix))) {
    return 'the header is set by Posthaste or by proxies; choose another name';
  }
  if (typeof value !== 'string' || !/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value)) {
    return 'a header value has visible ASCII characters and no space at its ends';
  }
  return value.length > CUSTOM_MAX_VALUE ? `a header value may have at most ${CUSTOM_MAX_VALUE} bytes` : null;
}

function lineBytes(name: string, value: string): number {
  return name.length + value.length + 4;
}

/**
 * Exact size of the head that goes out: request line, host, connection, the given headers, content-length and the
 * empty line.
 * @param path path and query as sent. @param authority value of the host header. @param bodyBytes length of the body.
 */
export function requestHeadBytes(
  path: string,
  authority: string,
  headers: readonly (readonly [string, string])[],
  bodyBytes: number,
): number {
  let bytes = 'POST  HTTP/1.1\r\n'.length + path.length + lineBytes('host', authority);
  bytes += lineBytes('connection', 'keep-alive') + lineBytes('content-length', String(bodyBytes)) + 2;
  for (let i = 0; i < headers.length; i++) {
    const header = headers[i] as readonly [string, string];
    bytes += header[0].length + header[1].length + 4;
  }
  return bytes;
}

/** What deliveryHeaders needs. `timestampSeconds` whole seconds, the same as signed. */
export interface DeliveryHead {
  readonly userAgent: string;
  readonly contentType: string;
  readonly id: string;
  readonly timestampSeconds: number;
  readonly signature: string;
  /** Only when the endpoint opted in; `tracestate` and `baggage` have no way out. */
  readonly traceparent?: string | undefined;
  /** Checked custom headers. */
  readonly custom?: Readonly<Record<string, string>> | undefined;
}

/** The complete head of a delivery in wire order: ours first, then the custom headers, all names in lower case. */
export function deliveryHeaders(head: DeliveryHead): HeaderList {
  const list: HeaderList = [
    ['user-agent', head.userAgent],
    ['content-type', head.contentType],
    ['accept-encoding', 'identity'],
    ['webhook-id', head.id],
    ['webhook-timestamp', String(head.timestampSeconds)],
    ['webhook-signature', head.signature],
  ];
  if (head.traceparent !== undefined) list.push(['traceparent', head.traceparent]);
  for (const name in head.custom) list.push([name.toLowerCase(), head.custom[name] as string]);
  return list;
}

// The longest of everything that varies: a 64-character id, five ed25519 signatures, a trace, a long content type.
const WORST_SIGNATURE = `v1a,${'x'.repeat(88)} `.repeat(MAX_SIGNING_SECRETS).trimEnd();
const WORST: Omit<DeliveryHead, 'custom'> = {
  userAgent: 'x'.repeat(48),
  contentType: 'x'.repeat(100),
  id: 'x'.repeat(64),
  timestampSeconds: 9_999_999_999,
  signature: WORST_SIGNATURE,
  traceparent: 'x'.repeat(55),
};

/**
 * Does the largest head this endpoint can ever produce fit into 4 KiB? Asked on write, so that no attempt can
 * overflow later.
 * @param url a URL that passed checkUrl. @param custom headers that passed checkCustomHeaders.
 */
export function checkHeadFits(url: string, custom: Readonly<Record<string, string>>): HeaderCheck {
  const parsed = new URL(url);
  const headers = deliveryHeaders({ ...WORST, custom });
  const bytes = requestHeadBytes(parsed.pathname + parsed.search, parsed.host, headers, 99_999_999);
  if (bytes <= HEAD_MAX) return { ok: true };
  const reason = `URL and custom headers make the request head up to ${bytes} bytes; the limit is ${HEAD_MAX}: shorten one`;
  return { ok: false, field: Object.keys(custom).at(-1) ?? 'url', reason };
}
