/** What an endpoint looks like from outside. Write-only values are shown by name, length and fingerprint. */
import { z } from '@hono/zod-openapi';
import type { EndpointRow } from '../db/endpoints.ts';
import { reportOf } from '../domain/endpoint-report.ts';
import { retrySchedule } from '../domain/outlook.ts';
import { DEFAULT_POLICY, type RetryPolicy as KeptPolicy } from '../domain/retry-policy.ts';
import { eventType, notifyEmails, text, timestamp } from './schemas.ts';

const duration = z.string().openapi({ example: '5m', description: 'A number and ms, s, m, h or d' });
const RetryPolicy = z
  .object({
    preset: z.enum(['default', 'standard-webhooks']).optional(),
    schedule: z.array(duration).optional(),
    base: duration.optional(),
    factor: z.number().optional(),
    cap: duration.optional(),
    jitter: z.enum(['equal', 'none']).optional(),
    deadline: duration.optional(),
    max_attempts: z.int().optional(),
    retry_4xx: z.boolean().optional(),
  })
  .openapi('RetryPolicy', {
    description:
      'One of `preset`, `schedule`, or `base`/`factor`/`cap`/`jitter`; plus `deadline` (72h unless given; a `schedule` that takes longer needs one), `max_attempts`, `retry_4xx`',
  });

/** Checked by src/domain/retry-policy.ts; here only described. */
const retryPolicy = z
  .unknown()
  .openapi({ type: 'object', allOf: [{ $ref: '#/components/schemas/RetryPolicy' }] });

const limits = z
  .strictObject({
    in_flight: z
      .int()
      .min(1)
      .max(1_000)
      .optional()
      .openapi({ description: 'Requests at a time; default 10' }),
    rate_per_second: z
      .number()
      .min(0.01)
      .max(10_000)
      .nullable()
      .optional()
      .openapi({ description: 'Requests per second, with bursts of a second (2 at least); null: no limit' }),
    catch_up_share: z.number().min(0).max(1).optional().openapi({
      description: 'Share of the rate that a backlog always gets, besides new traffic; default 0.1',
    }),
    timeout_ms: z.int().min(1_000).max(30_000).optional().openapi({ description: 'Default 15000' }),
  })
  .openapi('EndpointLimits');

const pem = z.string().min(1).max(65_536);
const tls = z
  .strictObject({ client_certificate: pem.optional(), client_key: pem.optional(), ca_bundle: pem.optional() })
  .openapi('EndpointTls', { description: 'PEM texts, write-only. Replaced as a whole.' });

/** Checked by src/domain/headers.ts: names, values, sizes. */
const headers = z.unknown().openapi({
  type: 'object',
  additionalProperties: { type: 'string' },
  description: 'Custom headers, write-only. Replaced as a whole.',
});

const fields = {
  url: z.string().min(1).max(2_048).openapi({ example: 'https://example.com/webhooks' }),
  description: text(512).nullable(),
  event_types: z.array(eventType).min(1).max(1_000).nullable().openapi({ description: 'null: every type' }),
  retry_policy: retryPolicy,
  limits,
  headers,
  tls: tls.nullable(),
  traceparent: z.boolean().openapi({ description: 'Whether to send a traceparent header' }),
  notify_emails: notifyEmails,
};

const optional = {
  description: fields.description.optional(),
  event_types: fields.event_types.optional(),
  retry_policy: fields.retry_policy.optional(),
  limits: fields.limits.optional(),
  headers: fields.headers.optional(),
  tls: fields.tls.optional(),
  traceparent: fields.traceparent.optional(),
  notify_emails: fields.notify_emails.optional(),
};

const secretKind = z.enum(['hmac', 'ed25519']);
const ownSecret = z.string().max(256).openapi({
  description: '`whsec_` and base64 of 24 to 64 bytes, or `whsk_` for ed25519. Made for you when left out.',
});

export const EndpointInput = z
  .strictObject({
    url: fields.url,
    ...optional,
    secret: ownSecret.optional(),
    secret_kind: secretKind.optional(),
  })
  .openapi('EndpointInput');
export const EndpointChange = z
  .strictObject({ url: fields.url.optional(), ...optional })
  .openapi('EndpointChange');
export type EndpointFields = Omit<z.output<typeof EndpointChange>, 'url'> & { url?: string | undefined };

export const Health = z
  .object({
    state: z.enum(['closed', 'open', 'half_open', 'recovering', 'misconfigured']),
    mode: z.enum(['shared', 'pump']),
    since: timestamp,
    next_probe_at: timestamp.nullable(),
    paused_until: timestamp.nullable().openapi({ description: 'Asked for by the receiver (Retry-After)' }),
    held: z.int().openapi({ description: 'Deliveries that wait for the endpoint, counted to 10,000' }),
    rate_per_second: z
      .number()
      .nullable()
      .openapi({ description: 'What it may be sent now; null: no limit but in_flight' }),
    caught_up_at: timestamp.nullable().openapi({ description: 'When the backlog will be gone at this rate' }),
    in_flight: z.int(),
    last_success_at: timestamp.nullable(),
  })
  .openapi('EndpointHealth');
const RetrySchedule = z
  .object({
    sentence: z.string().openapi({ example: retrySchedule(DEFAULT_POLICY).sentence }),
    deadline_seconds: z.number(),
    max_attempts: z.int().openapi({ description: 'The most there can be before the deadline' }),
    attempts: z
      .array(z.object({ n: z.int(), earliest_seconds: z.number(), latest_seconds: z.number() }))
      .openapi({ description: 'Seconds after the first attempt; the first 50 attempts' }),
  })
  .openapi('RetrySchedule', {
    description:
      'What `retry_policy` comes to when every attempt fails at once. Some outcomes and Retry-After lengthen waits: docs/failures.md',
  });

const certificate = z.object({ subject: z.string(), fingerprint_sha256: z.string(), expires_at: timestamp });
export const Endpoint = z
  .object({
    id: z.string(),
    url: z.string(),
    description: z.string().nullable(),
    event_types: z.array(z.string()).nullable(),
    state: z.enum(['active', 'paused', 'disabled']),
    disabled_reason: z.string().nullable(),
    disabled_at: timestamp.nullable(),
    retry_policy: RetryPolicy,
    retry_schedule: RetrySchedule,
    limits: z.object({
      in_flight: z.int(),
      rate_per_second: z.number().nullable(),
      catch_up_share: z.number(),
      timeout_ms: z.int(),
    }),
    health: Health,
    headers: z.array(z.object({ name: z.string(), length: z.int() })),
    tls: z.object({ client_certificate: certificate.nullable(), ca_bundle: z.array(certificate) }).nullable(),
    traceparent: z.boolean(),
    notify_emails: z.array(z.string()),
    revision: z.int().openapi({ description: 'Grows with every change' }),
    created_at: timestamp,
    updated_at: timestamp,
  })
  .openapi('Endpoint');

/** The answer of enable: what passed the endpoint by, and how to ask for it. */
export const EnabledEndpoint = Endpoint.extend({
  missed_since: timestamp.nullable().openapi({
    description: 'When it had been disabled; null: it was not. Events since then were not sent to it.',
  }),
  recover: z
    .object({
      method: z.literal('POST'),
      path: z.string(),
      body: z.object({ since: timestamp, missed: z.literal(true) }),
    })
    .nullable()
    .openapi({ description: 'The request that replays what was missed; null: nothing was' }),
}).openapi('EnabledEndpoint');

const secretFields = {
  secret_id: z.string(),
  secret: z.string().openapi({ example: 'whsec_…' }),
  secret_kind: secretKind,
  public_key: z.string().optional().openapi({ description: '`whpk_…`, of an ed25519 secret' }),
};
export const NewEndpoint = Endpoint.extend(secretFields).openapi('NewEndpoint');
export const Secret = z
  .object({
    ...secretFields,
    created_at: timestamp,
    previous: z
      .array(
        z.object({
          secret_id: z.string(),
          secret_kind: secretKind,
          created_at: timestamp,
          expires_at: timestamp,
        }),
      )
      .openapi({ description: 'Older secrets that still sign, last to expire first' }),
  })
  .openapi('Secret');
export const Rotation = z
  .strictObject({
    secret: ownSecret.optional(),
    kind: secretKind.optional().openapi({ description: 'Default: as before' }),
    grace: z
      .union([z.int().min(0).max(2_592_000), z.string().max(20)])
      .default('24h')
      .openapi({
        description:
          'How long the replaced secret goes on signing: seconds or a duration such as "24h"; 0: not at all',
      }),
    expire_oldest: z
      .boolean()
      .default(false)
      .openapi({ description: 'Make room for a sixth secret by ending the oldest' }),
  })
  .openapi('SecretRotation');

function scheduleView(policy: KeptPolicy) {
  const { sentence, deadlineMs, maxAttempts, attempts } = retrySchedule(policy);
  return {
    sentence,
    deadline_seconds: deadlineMs / 1_000,
    max_attempts: maxAttempts,
    attempts: attempts.map(({ n, earliestMs, latestMs }) => ({
      n,
      earliest_seconds: Math.round(earliestMs) / 1_000,
      latest_seconds: Math.round(latestMs) / 1_000,
    })),
  };
}

export function endpointView(row: EndpointRow) {
  return {
    id: row.id,
    url: row.url,
    description: row.description,
    event_types: row.event_types,
    state: row.state,
    disabled_reason: row.disabled_reason,
    disabled_at: row.state === 'disabled' ? row.disabled_at : null,
    retry_policy: row.retry_policy_given ?? { preset: 'default' },
    retry_schedule: scheduleView(row.retry_policy as KeptPolicy),
    limits: {
      in_flight: row.cap,
      rate_per_second: row.rate_limit,
      catch_up_share: rounded(row.catch_up_share),
      timeout_ms: row.timeout_ms,
    },
    health: healthView(row),
    headers: row.headers_shown,
    tls: row.tls_shown,
    traceparent: row.traceparent,
    notify_emails: row.notify_emails,
    revision: row.revision,
    created_at: row.created_at,
    updated_at: row.updated_at,
  };
}

/** As it was given: PostgreSQL's real has seven digits. */
const rounded = (value: number): number => Number(value.toPrecision(6));

function healthView(row: EndpointRow) {
  const report = reportOf(row, null, Date.now());
  return {
    state: report.health,
    mode: report.mode,
    since: report.since,
    next_probe_at: report.nextProbeAt,
    paused_until: report.pausedUntil,
    held: report.held,
    rate_per_second: report.rate === null ? null : rounded(report.rate),
    caught_up_at: report.caughtUpAt,
    in_flight: row.in_flight,
    last_success_at: row.last_success_at,
  };
}

export { RetryPolicy };
