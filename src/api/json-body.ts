/**
 * From bytes to a checked object, strictly: declared as JSON, UTF-8, one JSON text, no field given twice, no field
 * unknown. Called by dispatch.ts for ordinary routes; events.ts uses the first half and its own checker.
 */
import { isUtf8 } from 'node:buffer';
import type { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { pointerToken } from '../domain/event-input.ts';
import { duplicateKey, memberSpans } from '../domain/json-span.ts';
import { fieldProblem, type InputError, ProblemError } from '../errors.ts';

const JSON_TYPE = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;

/** Refuses bodies that are not declared as JSON in UTF-8. */
export function requireJsonType(ctx: Context): void {
  const type = ctx.req.header('content-type');
  if (type === 'application/json' || (type !== undefined && JSON_TYPE.test(type))) return;
  const got = type === undefined || type === '' ? 'nothing' : type.slice(0, 80);
  throw new ProblemError(
    'unsupported_media_type',
    `content-type must be application/json, in UTF-8; got ${got}`,
    // RFC 9110, 15.5.16: what would have been accepted.
    { headers: { accept: 'application/json' } },
  );
}

/** Parses one JSON text; V8's parser does not recurse, so depth costs nothing. */
export function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) throw new ProblemError('body_missing', 'the body is empty; send a JSON object');
  if (!isUtf8(bytes)) throw new ProblemError('malformed_utf8', 'the body is not valid UTF-8');
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new ProblemError('malformed_json', (error as Error).message.slice(0, 200));
  }
}

/** Checks the body against a schema. */
export function checkBody<T extends z.ZodType>(bytes: Buffer, schema: T): z.output<T> {
  const value = parseJson(bytes);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    const twice = duplicateKey(memberSpans(bytes));
    if (twice !== null) {
      throw fieldProblem([{ pointer: `/${pointerToken(twice)}`, detail: 'the field is given twice' }]);
    }
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw fieldProblem(result.error.issues.flatMap((issue) => inputErrors(issue)));
}

function inputErrors(issue: z.core.$ZodIssue): InputError[] {
  const at = issue.path.map((part) => `/${pointerToken(String(part))}`).join('');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ pointer: `${at}/${pointerToken(key)}`, detail: 'unknown field' }));
  }
  return [{ pointer: at, detail: detailOf(issue) }];
}

/** zod's sentences are for developers of schemas; these are for callers. */
export function detailOf(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_type') {
    return issue.input === undefined && issue.message.endsWith('received undefined')
      ? 'is required'
      : `must be ${ARTICLES[issue.expected] ?? issue.expected}`;
  }
  if (issue.code === 'too_big') return `must be at most ${issue.maximum}${unit(issue.origin)}`;
  if (issue.code === 'too_small') return `must be at least ${issue.minimum}${unit(issue.origin)}`;
  if (issue.code === 'invalid_value')
    return `must be one of ${issue.values.map((v) => JSON.stringify(v)).join(', ')}`;
  return issue.message;
}

const ARTICLES: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
  record: 'an object',
};

function unit(origin: string): string {
  if (origin === 'string') return ' characters long';
  return origin === 'array' ? ' items long' : '';
}
