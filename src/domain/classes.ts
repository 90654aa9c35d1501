/**
 * The closed list of what can become of an attempt. Everything that reacts to a result (schedule, breaker,
 * disabling, dashboard, docs/failures.md) reads it from here, so that a class means one thing everywhere.
 * Called by classify.ts, by the recording code and by scripts/failures.mjs. No units: all words.
 *
 * What follows from a class (schedule, attempts, health of the endpoint) is one of the policies of policies.ts.
 */
import {
  BLOCKED,
  FINAL,
  GATEWAY,
  type Health,
  ILL,
  NOT_NOW,
  OURS,
  OURS_SENT,
  type Pace,
  type Phase,
  type Policy,
  REFUSED,
  SLOW,
  THROTTLED,
  type Whose,
} from './policies.ts';

export { HEALTHS, PACES, PHASES } from './policies.ts';
export type { Health, Pace, Phase };

/** One row of the table. `phase` is where the class usually arises; the attempt record keeps the real one. */
export interface OutcomeInfo {
  readonly phase: Phase;
  readonly meaning: string;
  readonly whose: Whose;
  readonly pace: Pace;
  readonly burnsAttempt: boolean;
  readonly health: Health;
  /** One sentence to the receiver's owner. */
  readonly advice: string;
}

function row(phase: Phase, whose: Whose, policy: Policy, meaning: string, advice: string): OutcomeInfo {
  return { phase, meaning, whose, ...policy, advice };
}

/** Class name → what it means and what follows from it. Statuses first, then by phase. */
export const OUTCOME_CLASSES = {
  ok: row(
    'headers',
    'receiver',
    { pace: 'never', burnsAttempt: true, health: 'ok' },
    'The receiver answered with a 2xx status.',
    'Nothing to do.',
  ),
  http_3xx: row(
    'headers',
    'receiver',
    REFUSED,
    'The receiver answered with a redirect, which is never followed.',
    'Register the final URL; a redirect is a failure.',
  ),
  http_4xx: row(
    'headers',
    'receiver',
    REFUSED,
    'The receiver refused the request: a 4xx status other than 408, 410, 425 and 429.',
    'Check the path, the authentication and the signature check of the receiver, and its header and body limits.',
  ),
  http_408: row(
    'headers',
    'receiver',
    NOT_NOW,
    'The receiver gave up waiting for our request (408).',
    'Look for a slow proxy or an overloaded server in front of the receiver.',
  ),
  http_410: row(
    'headers',
    'receiver',
    FINAL,
    'The receiver says that the endpoint is gone for good (410); it is disabled.',
    'Enable the endpoint again once the receiver exists.',
  ),
  http_425: row(
    'headers',
    'receiver',
    NOT_NOW,
    'The receiver was not ready to process the request yet (425).',
    'Nothing to do unless it goes on.',
  ),
  http_429: row(
    'headers',
    'receiver',
    THROTTLED,
    'The receiver asked us to slow down (429).',
    'Raise the limit of the receiver or lower the rate limit of the endpoint.',
  ),
  http_502: row(
    'headers',
    'receiver',
    GATEWAY,
    'A gateway in front of the receiver got no good answer from it (502).',
    'Look for a crashed or restarting server behind the load balancer.',
  ),
  http_503: row(
    'headers',
    'receiver',
    ILL,
    'The receiver is overloaded or under maintenance (503).',
    'Add capacity, or say with Retry-After when to come back.',
  ),
  http_504: row(
    'headers',
    'receiver',
    GATEWAY,
    'A gateway in front of the receiver waited for it in vain (504); the request may have been processed.',
    'Answer with a 2xx at once and do the work afterwards.',
  ),
  http_5xx: row(
    'headers',
    'receiver',
    ILL,
    'The receiver failed with a 5xx status other than 502, 503 and 504.',
    'Read the logs of the receiver at the time of the attempt; the stored response body often says why.',
  ),
  invalid_url: row(
    'policy',
    'policy',
    BLOCKED,
    'The URL breaks the rules for endpoint URLs, or this deployment no longer allows what it allowed when it was saved.',
    'Use an https URL with a public host name on port 443 or 8443.',
  ),
  invalid_request: row(
    'policy',
    'sender',
    FINAL,
    'The request cannot be written as HTTP/1.1, for example because of a header value.',
    'Remove the custom header that was changed last.',
  ),
  blocked_address: row(
    'dns',
    'policy',
    BLOCKED,
    'The host leads to an address that is not allowed for webhooks.',
    'Publish only public addresses for the host name; one private address makes the whole name unusable.',
  ),
  queue_timeout: row(
    'queued',
    'sender',
    OURS,
    'No connection of the endpoint became free before the deadline; nothing was sent.',
    'Nothing to do; the limit of parallel requests is on our side.',
  ),
  not_started: row(
    'queued',
    'sender',
    OURS,
    'The claim on the delivery would have run out, so nothing was sent.',
    'Nothing to do; the delivery is tried again at once.',
  ),
  dns_not_found: row(
    'dns',
    'receiver',
    ILL,
    'The host name does not exist or has no address.',
    'Restore the DNS record of the host or correct the URL.',
  ),
  dns_temporary: row(
    'dns',
    'network',
    BLOCKED,
    'The name servers did not give a usable answer in time.',
    'Check that all name servers of the domain answer, over UDP and TCP.',
  ),
  connect_refused: row(
    'tcp',
    'receiver',
    ILL,
    'The host refused the connection.',
    'Start the server, or open the port in its firewall.',
  ),
  connect_unreachable: row(
    'tcp',
    'network',
    ILL,
    'There is no network path to the host.',
    'Check routing and, if the name has an IPv6 address, that it works.',
  ),
  connect_timeout: row(
    'tcp',
    'receiver',
    ILL,
    'The host did not accept a connection in time.',
    'Look for a firewall that drops packets or a server that no longer accepts connections.',
  ),
  connect_reset: row(
    'tcp',
    'receiver',
    ILL,
    'The connection was cut while it was being opened.',
    'Look for a firewall or load balancer that resets new connections.',
  ),
  tls_expired: row(
    'tls',
    'receiver',
    ILL,
    'The certificate of the receiver has expired.',
    'Renew the certificate and reload the server.',
  ),
  tls_not_yet_valid: row(
    'tls',
    'receiver',
    ILL,
    'The certificate of the receiver is not valid yet.',
    'Check the validity dates of the certificate and the clock of the machine that issued it.',
  ),
  tls_wrong_name: row(
    'tls',
    'receiver',
    ILL,
    'The certificate of the receiver is for another host name.',
    'Install a certificate that lists the host name of the URL.',
  ),
  tls_self_signed: row(
    'tls',
    'receiver',
    ILL,
    'The certificate of the receiver is signed by itself.',
    'Install a certificate of a public authority, or register your own CA bundle for the endpoint.',
  ),
  tls_untrusted_root: row(
    'tls',
    'receiver',
    ILL,
    'The certificate chain of the receiver ends in a root that is not trusted.',
    'Use a public authority, or register your own CA bundle for the endpoint.',
  ),
  tls_missing_intermediate: row(
    'tls',
    'receiver',
    ILL,
    'The receiver does not send the intermediate certificate of its chain.',
    'Configure the full chain in the server; browsers hide this fault, servers do not.',
  ),
  tls_certificate: row(
    'tls',
    'receiver',
    ILL,
    'The certificate of the receiver was rejected for another reason, such as a weak key or a revocation.',
    'Replace the certificate by one with a 2048-bit RSA or a P-256 key of a public authority.',
  ),
  tls_client_certificate_required: row(
    'tls',
    'receiver',
    ILL,
    'The receiver asks for a client certificate and the endpoint has none.',
    'Register a client certificate for the endpoint, or stop requiring one.',
  ),
  tls_client_certificate_refused: row(
    'tls',
    'receiver',
    ILL,
    'The receiver refused the client certificate of the endpoint.',
    'Check expiry and issuer of the client certificate that is registered for the endpoint.',
  ),
  tls_not_tls: row(
    'tls',
    'receiver',
    ILL,
    'The port of the receiver does not speak TLS.',
    'Put the https port into the URL, or enable TLS on this one.',
  ),
  tls_version: row(
    'tls',
    'receiver',
    ILL,
    'The receiver speaks no TLS version from 1.2 on.',
    'Enable TLS 1.2 or 1.3 in the server.',
  ),
  tls_handshake: row(
    'tls',
    'receiver',
    ILL,
    'The TLS handshake failed or was cut.',
    'Check the TLS log of the server for ciphers, server name and client certificate.',
  ),
  tls_timeout: row(
    'tls',
    'receiver',
    ILL,
    'The host accepted the connection and did not complete the TLS handshake in time.',
    'Check that the port speaks TLS and that the server has free workers.',
  ),
  reset_reused: row(
    'sent',
    'network',
    OURS,
    'A kept connection was closed as we used it, and there was no time left for a fresh one.',
    'Keep idle connections open for at least five seconds.',
  ),
  reset: row(
    'sent',
    'receiver',
    ILL,
    'The connection was cut before a complete response head came; the request may have been processed.',
    'Look for crashes, worker restarts and proxy limits at the time of the attempt.',
  ),
  deadline: row(
    'sent',
    'receiver',
    SLOW,
    'The deadline passed before a response came; the request may have been processed.',
    'Answer with a 2xx at once and do the work afterwards.',
  ),
  protocol: row(
    'headers',
    'receiver',
    ILL,
    'The response is not valid HTTP/1.1.',
    'Check what really answers on this port, and that no interim "100 Continue" is sent unasked.',
  ),
  response_headers_too_large: row(
    'headers',
    'receiver',
    ILL,
    'The response head is larger than 16 KiB.',
    'Send fewer or smaller response headers, cookies above all.',
  ),
  proxy_unavailable: row(
    'proxy',
    'network',
    OURS,
    'Our egress proxy is unreachable, overloaded, silent or answers nonsense.',
    'Nothing to do; the fault is on our side.',
  ),
  proxy_refused: row(
    'proxy',
    'sender',
    OURS,
    'Our egress proxy wants other credentials.',
    'Nothing to do; the fault is on our side.',
  ),
  proxy_upstream: row(
    'proxy',
    'receiver',
    ILL,
    'Our egress proxy could not reach the receiver.',
    'Check that the host is reachable from the public internet.',
  ),
  local: row(
    'none',
    'sender',
    OURS,
    'This worker ran out of a resource or could not read a secret; nothing is wrong with the receiver.',
    'Nothing to do; the fault is on our side.',
  ),
  stalled: row(
    'sent',
    'sender',
    OURS_SENT,
    'This worker could not run past the deadline (stopped, paused or starved), so nobody can say whether the receiver answered.',
    'Nothing to do; if it recurs, give the worker more CPU.',
  ),
  cancelled: row(
    'none',
    'sender',
    OURS,
    'The attempt was called off, for example because the worker stops or the endpoint was deleted.',
    'Nothing to do.',
  ),
  worker_lost: row(
    'none',
    'sender',
    OURS,
    'The worker vanished during the attempt; the request may or may not have been sent.',
    'Nothing to do; a repeat carries the same webhook-id.',
  ),
  unknown: row(
    'none',
    'network',
    ILL,
    'A fault that none of the other classes describes.',
    'Read the error text of the attempt; if it goes on, tell the sender.',
  ),
} as const satisfies Record<string, OutcomeInfo>;

/** One of the closed list. */
export type OutcomeClass = keyof typeof OUTCOME_CLASSES;

/** The names, in table order. */
export const OUTCOME_CLASS_NAMES = Object.keys(OUTCOME_CLASSES) as readonly OutcomeClass[];

/**
 * The row of a class whose text comes from the database.
 * @returns undefined for a name this version does not know.
 */
export function outcomeInfo(name: string): OutcomeInfo | undefined {
  return Object.hasOwn(OUTCOME_CLASSES, name) ? OUTCOME_CLASSES[name as OutcomeClass] : undefined;
}
