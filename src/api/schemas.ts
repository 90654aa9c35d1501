/** zod objects that several routes share. They check input and describe it: the OpenAPI document comes from them. */
import { z } from '@hono/zod-openapi';
import { EVENT_TYPE, parseTimestamp } from '../domain/event-input.ts';

/** Text a person wrote: no control characters (PostgreSQL refuses NUL), no lone surrogates. */
export const text = (max: number) =>
  z
    .string()
    .max(max)
    .refine((value) => value.isWellFormed() && !CONTROL.test(value), 'must not contain control characters');
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

const EMAIL = /^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+$/;
export const notifyEmails = z
  .array(z.string().max(254).regex(EMAIL, 'must be an e-mail address'))
  .max(20)
  .openapi({
    description: 'Who gets mail about failing and disabled endpoints, when the deployment has a mail server',
  });

export const eventType = z
  .string()
  .regex(EVENT_TYPE, 'must be 1 to 128 of A-Z a-z 0-9 _ . : / -')
  .openapi({ example: 'invoice.paid' });

/** A query parameter that is a time. */
export const time = z
  .string()
  .transform((value) => parseTimestamp(value))
  .refine((ms) => ms !== null, 'must be an RFC 3339 time such as 2026-01-31T12:00:00Z')
  .transform((ms) => new Date(ms as number))
  .openapi({ type: 'string', format: 'date-time' });

export const timestamp = z.string().openapi({ format: 'date-time', example: '2026-01-31T12:00:00.000Z' });

/** An id in an answer or a filter. */
export const id = (prefix: string) =>
  z
    .string()
    .regex(new RegExp(`^${prefix}_[0-9A-HJKMNP-TV-Z]{26}$`), `must be an id that starts with ${prefix}_`)
    .openapi({ example: `${prefix}_01KD5V3Q9BC6PK4RVB9ZY3MXW8` });

export const page = <T extends z.ZodType>(item: T) =>
  z.object({
    data: z.array(item),
    next_cursor: z.string().nullable().openapi({ description: 'null: this was the last page' }),
  });

/** A list's answer: one row more than `limit` was asked for, to know whether there is another page. */
export function pageOf<R, V>(
  rows: readonly R[],
  limit: number,
  view: (row: R) => V,
  cursor: (last: R) => string,
): { data: V[]; next_cursor: string | null } {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return {
    data: shown.map(view),
    next_cursor: rows.length > limit && last !== undefined ? cursor(last) : null,
  };
}
