/**
 * From what a caller wrote to what is stored: every rule of an endpoint's settings, all faults reported together.
 * A change is laid over the settings there are, so that rules over several fields (URL and headers share one request
 * head) hold whichever of them changes. Called by endpoints.ts for creation and change.
 */
import { X509Certificate } from 'node:crypto';
import type { EndpointRow, EndpointSettings } from '../db/endpoints.ts';
import { pointerToken } from '../domain/event-input.ts';
import { checkCustomHeaders, checkHeadFits } from '../domain/headers.ts';
import { DEFAULT_POLICY, normalizeRetryPolicy } from '../domain/retry-policy.ts';
import { checkUrl } from '../domain/url-rules.ts';
import { TlsProfileError, tlsProfile } from '../egress/tls.ts';
import { fieldProblem, type InputError } from '../errors.ts';
import type { ApiDeps } from './deps.ts';
import type { EndpointFields } from './endpoint-schemas.ts';
import { openHeaders, sealHeaders, sealTls, type TlsParts } from './sealing.ts';

const DEFAULTS: EndpointSettings = {
  url: '',
  description: null,
  eventTypes: null,
  retryPolicy: DEFAULT_POLICY,
  retryPolicyGiven: null,
  deadlineMs: DEFAULT_POLICY.deadlineMs,
  timeoutMs: 15_000,
  cap: 10,
  rateLimit: null,
  catchUpShare: 0.1,
  headersSealed: null,
  headersShown: [],
  tlsSealed: null,
  tlsShown: null,
  traceparent: false,
  notifyEmails: [],
};

/** @param row the endpoint as it is; null: it is being made. Throws one problem that names every wrong field. */
export function settingsFrom(
  deps: ApiDeps,
  tenant: string,
  endpoint: string,
  row: EndpointRow | null,
  given: EndpointFields,
): EndpointSettings {
  const keys = deps.config.masterKeys;
  const errors: InputError[] = [];
  const before = row === null ? DEFAULTS : settingsOf(row);
  const settings: EndpointSettings = {
    ...before,
    description: given.description === undefined ? before.description : given.description,
    eventTypes: given.event_types === undefined ? before.eventTypes : unique(given.event_types),
    timeoutMs: given.limits?.timeout_ms ?? before.timeoutMs,
    cap: given.limits?.in_flight ?? before.cap,
    rateLimit: given.limits?.rate_per_second === undefined ? before.rateLimit : given.limits.rate_per_second,
    catchUpShare: given.limits?.catch_up_share ?? before.catchUpShare,
    traceparent: given.traceparent ?? before.traceparent,
    notifyEmails:
      given.notify_emails === undefined ? before.notifyEmails : (unique(given.notify_emails) ?? []),
  };

  if (given.url !== undefined) {
    const checked = checkUrl(given.url, deps.config.egressAllow);
    if (checked.ok) settings.url = checked.href;
    else errors.push({ pointer: '/url', detail: checked.reason });
  }
  if (given.retry_policy !== undefined) {
    const checked = normalizeRetryPolicy(given.retry_policy);
    if (checked.ok) {
      settings.retryPolicy = checked.policy;
      settings.retryPolicyGiven = given.retry_policy;
      settings.deadlineMs = checked.deadlineMs;
    } else {
      errors.push({ pointer: `/retry_policy${checked.pointer}`, detail: checked.detail });
    }
  }
  if (given.tls !== undefined) {
    const parts = given.tls === null ? {} : partsOf(given.tls);
    try {
      const used = tlsProfile(parts) !== undefined;
      settings.tlsSealed = used ? sealTls(keys, tenant, endpoint, parts) : null;
      settings.tlsShown = used ? tlsShown(parts) : null;
    } catch (error) {
      if (!(error instanceof TlsProfileError)) throw error;
      errors.push({ pointer: `/tls/${error.field}`, detail: error.message });
    }
  }
  const headers = headersOf(given.headers, errors);
  if (headers !== undefined) {
    const empty = Object.keys(headers).length === 0;
    settings.headersSealed = empty ? null : sealHeaders(keys, tenant, endpoint, headers);
    settings.headersShown = Object.entries(headers).map(([name, value]) => ({ name, length: value.length }));
  }
  if (errors.length === 0 && (headers !== undefined || given.url !== undefined)) {
    const sealed = settings.headersSealed;
    const all = headers ?? (sealed === null ? {} : openHeaders(keys, tenant, endpoint, sealed));
    const fits = checkHeadFits(settings.url, all);
    const pointer =
      headers === undefined || fits.ok || fits.field === 'url'
        ? '/url'
        : `/headers/${pointerToken(fits.field)}`;
    if (!fits.ok) errors.push({ pointer, detail: fits.reason });
  }
  if (errors.length > 0) throw fieldProblem(errors);
  return settings;
}

function settingsOf(row: EndpointRow): EndpointSettings {
  return {
    url: row.url,
    description: row.description,
    eventTypes: row.event_types,
    retryPolicy: row.retry_policy,
    retryPolicyGiven: row.retry_policy_given,
    deadlineMs: row.deadline_ms,
    timeoutMs: row.timeout_ms,
    cap: row.cap,
    rateLimit: row.rate_limit,
    catchUpShare: row.catch_up_share,
    headersSealed: row.headers_sealed,
    headersShown: row.headers_shown,
    tlsSealed: row.tls_sealed,
    tlsShown: row.tls_shown,
    traceparent: row.traceparent,
    notifyEmails: row.notify_emails,
  };
}

/** Checked by hand: a schema library would drop `__proto__`, and the domain names the field more exactly. */
function headersOf(given: unknown, errors: InputError[]): Record<string, string> | undefined {
  if (given === undefined) return undefined;
  if (given === null) return {};
  if (typeof given !== 'object' || Array.isArray(given)) {
    errors.push({ pointer: '/headers', detail: 'must be an object of names and values' });
    return undefined;
  }
  const checked = checkCustomHeaders(given as Record<string, string>);
  if (checked.ok) return given as Record<string, string>;
  errors.push({ pointer: `/headers/${pointerToken(checked.field)}`, detail: checked.reason });
  return undefined;
}

function partsOf(given: NonNullable<EndpointFields['tls']>): TlsParts {
  return {
    ...(given.client_certificate === undefined ? {} : { cert: given.client_certificate }),
    ...(given.client_key === undefined ? {} : { key: given.client_key }),
    ...(given.ca_bundle === undefined ? {} : { ca: given.ca_bundle }),
  };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

function tlsShown(parts: TlsParts): unknown {
  const shown = (pem: string) => {
    const certificate = new X509Certificate(pem);
    return {
      subject: certificate.subject ?? '',
      fingerprint_sha256: certificate.fingerprint256,
      expires_at: new Date(certificate.validTo).toISOString(),
    };
  };
  const all = (pem: string | undefined) => (pem?.match(CERTIFICATE) ?? []).map(shown);
  return { client_certificate: all(parts.cert)[0] ?? null, ca_bundle: all(parts.ca) };
}

function unique(list: readonly string[] | null): string[] | null {
  return list === null ? null : [...new Set(list)];
}
