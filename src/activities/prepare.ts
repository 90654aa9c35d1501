/**
 * From stored facts to the request: opens sealed values, builds the body, signs. Called by sender.ts.
 * Endpoints are prepared once per batch, requests once per attempt (fresh timestamp and signature).
 */

import { hash, randomBytes } from 'node:crypto';
import type { LoadedDelivery, LoadedEndpoint } from '../db/load.ts';
import { buildBody } from '../domain/body.ts';
import { deliveryHeaders } from '../domain/headers.ts';
import { DEFAULT_POLICY, type RetryPolicy } from '../domain/retry-policy.ts';
import { parseSecret, type SigningSecret, signatureHeader } from '../egress/sign.ts';
import { type TlsProfile, tlsProfile } from '../egress/tls.ts';
import { type MasterKeys, sealingAad } from '../secrets.ts';

export interface PreparedEndpoint {
  readonly row: LoadedEndpoint;
  readonly host: string;
  readonly policy: RetryPolicy;
  readonly secrets: readonly SigningSecret[];
  readonly custom: Readonly<Record<string, string>> | undefined;
  readonly tls: TlsProfile | undefined;
}

export interface PreparedRequest {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** Headers as they go into the log: custom values are only named with their length. */
  readonly logged: string;
}

/** Purposes that bind sealed values to what they are (src/secrets.ts sealingAad). */
export const SECRET_PURPOSE = 'endpoint_secret';
export const HEADERS_PURPOSE = 'endpoint_headers';
export const TLS_PURPOSE = 'endpoint_tls';

const USER_AGENT = 'Posthaste/1';

/** Opens what is sealed. Throws SealError or TlsProfileError: the attempt is then a fault of ours, class local. */
export function prepareEndpoint(row: LoadedEndpoint, keys: MasterKeys): PreparedEndpoint {
  const secrets = row.secrets.map((secret) => {
    const opened = keys.open(
      Buffer.from(secret.sealed, 'base64'),
      sealingAad(SECRET_PURPOSE, row.tenant, row.id, secret.id),
    );
    return parseSecret(opened.toString('utf8'));
  });
  const open = (sealed: Buffer, purpose: string): unknown =>
    JSON.parse(keys.open(sealed, sealingAad(purpose, row.tenant, row.id, row.id)).toString('utf8'));
  const custom =
    row.headers_sealed === null
      ? undefined
      : (open(row.headers_sealed, HEADERS_PURPOSE) as Record<string, string>);
  const tls =
    row.tls_sealed === null
      ? undefined
      : tlsProfile(open(row.tls_sealed, TLS_PURPOSE) as { cert?: string; key?: string; ca?: string });
  return {
    row,
    host: new URL(row.url).host,
    policy: (row.retry_policy as RetryPolicy | null) ?? DEFAULT_POLICY,
    secrets,
    custom,
    tls,
  };
}

/** The exact bytes of a delivery's body. */
export function deliveryBody(delivery: LoadedDelivery): Buffer {
  const { content } = delivery;
  if (content === null) throw new Error('the event is gone');
  return buildBody(
    {
      raw: content.raw,
      event: delivery.event,
      type: delivery.event_type,
      occurredAtMs: content.occurred_at.getTime(),
      version: content.version,
      sequence: delivery.sequence,
    },
    content.body,
    (text) => Buffer.from(text),
    (parts) => Buffer.concat(parts),
  );
}

/**
 * W3C Trace Context, for endpoints that opted in: one trace per event, a new parent id per attempt. Without anything
 * of ours upstream, since `tracestate` and `baggage` never leave.
 */
function traceparentOf(event: string): string {
  return `00-${hash('sha256', event).slice(0, 32)}-${randomBytes(8).toString('hex')}-01`;
}

/** Signs now: `nowMs` is database-corrected time. */
export function prepareRequest(
  delivery: LoadedDelivery,
  endpoint: PreparedEndpoint,
  nowMs: number,
): PreparedRequest {
  const body = deliveryBody(delivery);
  const timestampSeconds = Math.floor(nowMs / 1_000);
  const signature = signatureHeader(endpoint.secrets, delivery.event, timestampSeconds, body);
  const head = {
    userAgent: USER_AGENT,
    contentType: delivery.content!.content_type,
    id: delivery.event,
    timestampSeconds,
    signature,
    ...(endpoint.row.traceparent ? { traceparent: traceparentOf(delivery.event) } : {}),
  };
  const headers = deliveryHeaders({ ...head, custom: endpoint.custom });
  const shown =
    endpoint.custom === undefined
      ? headers
      : [
          ...deliveryHeaders(head),
          ...Object.entries(endpoint.custom).map(([name, value]) => [
            name.toLowerCase(),
            `[${value.length} characters]`,
          ]),
        ];
  return {
    headers,
    body,
    logged: JSON.stringify([
      ['host', endpoint.host],
      ['connection', 'keep-alive'],
      ...shown,
      ['content-length', String(body.length)],
    ]),
  };
}
