/**
 * From what happened to its class. One error code means different things in different phases, so both decide,
 * and a fault nobody foresaw is `unknown`, which is retried. Called by src/egress once per attempt.
 */
import type { OutcomeClass, Phase } from './classes.ts';

/**
 * The class of a final status line. The body is never looked at.
 * @param status as parsed; numbers outside 200-599 are not final statuses of HTTP.
 */
export function classifyStatus(status: number): OutcomeClass {
  if (status >= 200 && status < 300) return 'ok';
  switch (status) {
    case 408:
      return 'http_408';
    case 410:
      return 'http_410';
    case 425:
      return 'http_425';
    case 429:
      return 'http_429';
    case 502:
      return 'http_502';
    case 503:
      return 'http_503';
    case 504:
      return 'http_504';
  }
  if (status >= 300 && status < 400) return 'http_3xx';
  if (status >= 400 && status < 500) return 'http_4xx';
  return status >= 500 && status < 600 ? 'http_5xx' : 'protocol';
}

/** What is known about a failure without a final status. */
export interface Fault {
  readonly phase: Phase;
  /** `code` of the error, or of the first of its inner errors; '' when it has none. */
  readonly code: string;
  /** `name` of the error: parser errors carry no code. */
  readonly name: string;
  /** The socket had carried an earlier request and gave no byte for this one. */
  readonly staleSocket: boolean;
  /** The server asked for a client certificate during the handshake. */
  readonly certificateRequested: boolean;
  /** The endpoint has one. */
  readonly clientCertificate: boolean;
}

const DNS_TEMPORARY = new Set(
  (
    'EAI_AGAIN ESERVFAIL ETIMEOUT EREFUSED ECONNREFUSED ECANCELLED ENOTIMP EFORMERR EBADRESP ENOMEM EFILE EOF ' +
    'EDESTRUCTION ENOTINITIALIZED EBADSTR ELOADIPHLPAPI ETIMEDOUT'
  ).split(' '),
);
const OUT_OF_RESOURCES = new Set(
  'EMFILE ENFILE ENOBUFS ENOMEM EADDRINUSE EADDRNOTAVAIL EACCES EPERM UND_ERR_DESTROYED UND_ERR_CLOSED'.split(
    ' ',
  ),
);
const RESETS = new Set(
  'ECONNRESET EPIPE UND_ERR_SOCKET ECONNABORTED ERR_STREAM_PREMATURE_CLOSE ENOTCONN'.split(' '),
);

const TLS_CODES: Readonly<Record<string, OutcomeClass>> = {
  CERT_HAS_EXPIRED: 'tls_expired',
  CERT_NOT_YET_VALID: 'tls_not_yet_valid',
  ERR_TLS_CERT_ALTNAME_INVALID: 'tls_wrong_name',
  HOSTNAME_MISMATCH: 'tls_wrong_name',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls_self_signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls_untrusted_root',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls_missing_intermediate',
  UNABLE_TO_GET_ISSUER_CERT: 'tls_missing_intermediate',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'tls_missing_intermediate',
  ERR_SSL_WRONG_VERSION_NUMBER: 'tls_not_tls',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'tls_not_tls',
  ERR_SSL_HTTP_REQUEST: 'tls_not_tls',
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: 'tls_version',
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'tls_version',
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: 'tls_client_certificate_required',
  ERR_TLS_HANDSHAKE_TIMEOUT: 'tls_timeout',
};

// Certificate verdicts of OpenSSL that have no class of their own.
const CERTIFICATE =
  /^(?:CERT_|INVALID_(?:CA|PURPOSE)|CRL_|ERROR_IN_CERT|PATH_LENGTH|UNSPECIFIED$|ERR_TLS_CERT_|UNABLE_TO_(?:DECRYPT|DECODE|GET_CRL)|EE_KEY|CA_(?:KEY|MD)|OUT_OF_MEM)/;
// Alerts that only a server which checks our certificate sends.
const CERTIFICATE_ALERT =
  /ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_(?:EXPIRED|REVOKED|UNKNOWN)|UNSUPPORTED_CERTIFICATE)/;

/** The class of an attempt that ended without a final status. */
export function classifyFault(fault: Fault): OutcomeClass {
  switch (fault.phase) {
    case 'dns':
      return classifyDns(fault.code);
    case 'tcp':
      return classifyTcp(fault.code);
    case 'tls':
      return classifyTls(fault);
    case 'proxy':
      return OUT_OF_RESOURCES.has(fault.code) ? 'local' : 'proxy_unavailable';
    case 'sent':
    case 'headers':
      return classifyExchange(fault);
    default:
      return OUT_OF_RESOURCES.has(fault.code) ? 'local' : 'unknown';
  }
}

function classifyDns(code: string): OutcomeClass {
  if (code === 'ENOTFOUND' || code === 'ENODATA' || code === 'EBADNAME') return 'dns_not_found';
  return DNS_TEMPORARY.has(code) ? 'dns_temporary' : 'unknown';
}

function classifyTcp(code: string): OutcomeClass {
  if (code === 'ECONNREFUSED') return 'connect_refused';
  if (code === 'ETIMEDOUT' || code === 'ERR_SOCKET_CONNECTION_TIMEOUT') return 'connect_timeout';
  if (code === 'ENETUNREACH' || code === 'EHOSTUNREACH' || code === 'EHOSTDOWN' || code === 'ENETDOWN') {
    return 'connect_unreachable';
  }
  if (RESETS.has(code)) return 'connect_reset';
  return OUT_OF_RESOURCES.has(code) ? 'local' : 'unknown';
}

function classifyTls(fault: Fault): OutcomeClass {
  const { code } = fault;
  const known = Object.hasOwn(TLS_CODES, code) ? TLS_CODES[code] : undefined;
  if (known) return known;
  if (OUT_OF_RESOURCES.has(code) && code !== 'EACCES' && code !== 'EPERM') return 'local';
  if (fault.clientCertificate && CERTIFICATE_ALERT.test(code)) return 'tls_client_certificate_refused';
  if (CERTIFICATE.test(code)) return 'tls_certificate';
  return fault.certificateRequested ? certificateVerdict(fault) : 'tls_handshake';
}

function classifyExchange(fault: Fault): OutcomeClass {
  const { code } = fault;
  if (fault.name === 'HTTPParserError' || code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH') return 'protocol';
  if (code === 'UND_ERR_HEADERS_OVERFLOW') return 'response_headers_too_large';
  if (code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_NOT_SUPPORTED') return 'invalid_request';
  if (code.startsWith('ERR_SSL_') || code === 'EPROTO') return classifyTls(fault);
  if (OUT_OF_RESOURCES.has(code)) return 'local';
  if (!RESETS.has(code)) return code === 'ETIMEDOUT' ? 'reset' : 'unknown';
  if (fault.staleSocket) return 'reset_reused';
  // In TLS 1.3 the server judges our certificate after we have sent the request.
  return fault.phase === 'sent' && fault.certificateRequested ? certificateVerdict(fault) : 'reset';
}

/** A server that asked for a certificate and then hung up did not like what it got. */
function certificateVerdict(fault: Fault): OutcomeClass {
  return fault.clientCertificate ? 'tls_client_certificate_refused' : 'tls_client_certificate_required';
}

/**
 * The class of a proxy's refusal to CONNECT.
 * @param deniedBecause text of `x-smokescreen-error`; null when the header is missing.
 * Source: Smokescreen: 407 for a denied address, 502 for DNS and dial failures, 504 for a dial timeout, 429 and
 * 503 for its own limits.
 */
export function classifyProxy(status: number, deniedBecause: string | null): OutcomeClass {
  if (status === 407) return deniedBecause === null ? 'proxy_refused' : 'blocked_address';
  if (status === 504) return 'connect_timeout';
  if (status !== 502) return 'proxy_unavailable';
  const text = deniedBecause ?? '';
  if (/no such host|nxdomain|not found/i.test(text)) return 'dns_not_found';
  if (/server misbehaving|lookup|dns/i.test(text)) return 'dns_temporary';
  if (/refused/i.test(text)) return 'connect_refused';
  if (/unreachable|no route/i.test(text)) return 'connect_unreachable';
  return /time(?:d )?out/i.test(text) ? 'connect_timeout' : 'proxy_upstream';
}
