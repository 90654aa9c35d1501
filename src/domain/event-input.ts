/**
 * What a producer may send as an event. Written by hand instead of with a schema library: it is the hot path, and
 * `version` and `data` must be read from the text, not from parsed values. test/api/events.test.ts holds it to the
 * published schema. Called by the API for single events, batches (once per element) and raw bodies.
 */
import { memberSpans, type Span } from './json-span.ts';

export const EVENT_TYPE = /^[A-Za-z0-9_.:/-]{1,128}$/;
export const EVENT_ID = /^[A-Za-z0-9_-]{1,64}$/;
export const MAX_VERSION = 9_223_372_036_854_775_807n;

export interface EventInput {
  readonly type: string;
  readonly id: string | null;
  /** Decimal digits: it may exceed 2^53. */
  readonly version: string | null;
  readonly occurredAtMs: number | null;
  /** Where `data` lies in the text. */
  readonly data: Span;
}

/** `pointer` is a JSON pointer from the root of the request. */
export interface FieldError {
  readonly pointer: string;
  readonly detail: string;
}

export type EventCheck =
  | { readonly ok: true; readonly event: EventInput }
  | { readonly ok: false; readonly errors: FieldError[] };

const FIELDS = ['type', 'data', 'id', 'version', 'timestamp'];
const TYPE_RULE = 'must be 1 to 128 of A-Z a-z 0-9 _ . : / -';
const ID_RULE = 'must be 1 to 64 of A-Z a-z 0-9 _ -';
const VERSION_RULE = 'must be a whole number from 0 to 9223372036854775807, as a number or a string';
const TIMESTAMP_RULE = 'must be an RFC 3339 time such as 2026-01-31T12:00:00Z';

/**
 * Checks one event of a request.
 * @param value what JSON.parse made of it. @param text the request. @param start where it begins in the text.
 * @param at pointer of the event itself: '' for a single one, '/events/3' in a batch.
 */
export function checkEvent(value: unknown, text: Uint8Array, start: number, at: string): EventCheck {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { ok: false, errors: [{ pointer: at, detail: 'must be an object with type and data' }] };
  }
  const given = value as Record<string, unknown>;
  const errors: FieldError[] = [];
  const spans = new Map<string, Span>();
  for (const member of memberSpans(text, start)) {
    const pointer = `${at}/${pointerToken(member.key)}`;
    if (!FIELDS.includes(member.key)) {
      errors.push({ pointer, detail: `unknown field; known are ${FIELDS.join(', ')}` });
    } else if (spans.has(member.key)) {
      errors.push({ pointer, detail: 'the field is given twice' });
    }
    spans.set(member.key, member);
  }

  const type = given.type;
  if (typeof type !== 'string' || !EVENT_TYPE.test(type)) {
    errors.push({ pointer: `${at}/type`, detail: spans.has('type') ? TYPE_RULE : 'is required' });
  }
  const data = spans.get('data');
  if (data === undefined) errors.push({ pointer: `${at}/data`, detail: 'is required; null is a value' });
  const id = given.id ?? null;
  if (id !== null && !isEventId(id)) errors.push({ pointer: `${at}/id`, detail: ID_RULE });

  let version: string | null = null;
  const versionSpan = spans.get('version');
  if (versionSpan !== undefined && given.version !== null) {
    version = checkVersion(given.version, text, versionSpan);
    if (version === null) errors.push({ pointer: `${at}/version`, detail: VERSION_RULE });
  }
  let occurredAtMs: number | null = null;
  if (given.timestamp !== undefined && given.timestamp !== null) {
    occurredAtMs = parseTimestamp(given.timestamp);
    if (occurredAtMs === null) errors.push({ pointer: `${at}/timestamp`, detail: TIMESTAMP_RULE });
  }
  if (errors.length > 0 || data === undefined) return { ok: false, errors };
  return { ok: true, event: { type: type as string, id: id as string | null, version, occurredAtMs, data } };
}

/** The parameters of a raw event, whose body is taken as it is. Pointers are names of parameters here. */
export function checkRawEvent(
  given: Readonly<Record<'type' | 'id' | 'version' | 'timestamp', string | null>>,
):
  | { ok: true; event: Omit<EventInput, 'data'> }
  | { ok: false; errors: { parameter: string; detail: string }[] } {
  const errors: { parameter: string; detail: string }[] = [];
  const { type, id } = given;
  if (type === null || !EVENT_TYPE.test(type)) {
    errors.push({ parameter: 'type', detail: type === null ? 'is required' : TYPE_RULE });
  }
  if (id !== null && !isEventId(id)) errors.push({ parameter: 'id', detail: ID_RULE });
  const version = given.version === null ? null : parseVersion(given.version);
  if (given.version !== null && version === null) errors.push({ parameter: 'version', detail: VERSION_RULE });
  const occurredAtMs = given.timestamp === null ? null : parseTimestamp(given.timestamp);
  if (given.timestamp !== null && occurredAtMs === null) {
    errors.push({ parameter: 'timestamp', detail: TIMESTAMP_RULE });
  }
  if (errors.length > 0) return { ok: false, errors };
  return { ok: true, event: { type: type as string, id, version, occurredAtMs } };
}

/** Whether the value can be an event's id. */
export function isEventId(value: unknown): value is string {
  return typeof value === 'string' && EVENT_ID.test(value);
}

/** A number must be written as plain digits: `1e3` and `1.0` are other ways to lose exactness. */
function checkVersion(value: unknown, text: Uint8Array, span: Span): string | null {
  if (typeof value === 'string') return parseVersion(value);
  if (typeof value !== 'number' || span.end - span.start > 19) return null;
  let digits = '';
  for (let i = span.start; i < span.end; i++) digits += String.fromCharCode(text[i] as number);
  return parseVersion(digits);
}

function parseVersion(digits: string): string | null {
  if (!/^(?:0|[1-9]\d{0,18})$/.test(digits)) return null;
  return digits.length === 19 && BigInt(digits) > MAX_VERSION ? null : digits;
}

const RFC_3339 =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;

/** Unix milliseconds of an RFC 3339 time of the years 1 to 9999, or null. Fractions are cut to milliseconds. */
export function parseTimestamp(value: unknown): number | null {
  const match = typeof value === 'string' ? RFC_3339.exec(value) : null;
  if (match === null) return null;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const daysInMonth = month === 2 ? (isLeap(year) ? 29 : 28) : [4, 6, 9, 11].includes(month) ? 30 : 31;
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > daysInMonth) return null;
  if (hour > 23 || minute > 59 || second > 59) return null;
  const offsetMinutes = match[8] === undefined ? 0 : Number(match[9]) * 60 + Number(match[10]);
  if (offsetMinutes > 0 && (Number(match[9]) > 23 || Number(match[10]) > 59)) return null;
  const milliseconds = Number((match[7] ?? '0').slice(0, 3).padEnd(3, '0'));
  const date = new Date(Date.UTC(2000, month - 1, day, hour, minute, second, milliseconds));
  date.setUTCFullYear(year, month - 1, day); // Date.UTC reads the years 0 to 99 as 19xx
  const ms = date.getTime() - (match[8] === '-' ? -1 : 1) * offsetMinutes * 60_000;
  return ms >= -62_135_596_800_000 && ms <= 253_402_300_799_999 ? ms : null;
}

function isLeap(year: number): boolean {
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
}

/** A key as one token of a JSON pointer (RFC 6901). */
export function pointerToken(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1');
}
