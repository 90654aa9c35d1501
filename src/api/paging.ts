/** Cursors of lists as the routes use them: wrong ones are a problem of their own. */
import { decodeCursor, encodeCursor } from '../domain/cursor.ts';
import { ProblemError } from '../errors.ts';

export interface Paging {
  /** Where the page before ended; null: this is the first. */
  readonly after: string[] | null;
  cursor(position: readonly string[]): string;
}

/** @param filters everything that selects rows, the tenant included. @param forms of the position's parts. */
export function paging(
  cursor: string | undefined,
  resource: string,
  filters: unknown,
  forms: readonly RegExp[],
): Paging {
  let after: string[] | null = null;
  if (cursor !== undefined) {
    after = decodeCursor(cursor, resource, filters, forms.length);
    if (after === null || !after.every((part, i) => (forms[i] as RegExp).test(part))) {
      throw new ProblemError('cursor_invalid', 'the cursor is not one of this list with these filters', {
        errors: [{ parameter: 'cursor', detail: 'is not one of this list with these filters' }],
      });
    }
  }
  return { after, cursor: (position) => encodeCursor(resource, filters, position) };
}

/** Forms of positions. */
export const ID_FORM = /^[A-Za-z0-9_.:-]{1,64}$/;
export const MS_FORM = /^\d{1,15}$/;
export const MICROS_FORM = /^\d{1,18}$/;
export const NUMBER_FORM = /^\d{1,9}$/;
