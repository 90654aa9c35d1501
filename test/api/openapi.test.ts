/** The published document: it is what the code says, and it is right about what the code does. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { EventInputSchema } from '../../src/api/events.ts';
import { allSpecs, openApiDocument, problemsMarkdown } from '../../src/api/openapi.ts';
import { checkEvent } from '../../src/domain/event-input.ts';
import { PROBLEMS } from '../../src/errors.ts';
import { rig } from './support.ts';

const api = rig({ metricsText: async () => 'posthaste_up 1\n' });
const file = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

test('openapi.json is what the source says (else run scripts/openapi.mjs)', () => {
  expect(JSON.parse(file('openapi.json'))).toEqual(JSON.parse(JSON.stringify(openApiDocument())));
});

test('docs/problems.md is what the source says (else run scripts/openapi.mjs)', () => {
  expect(file('docs/problems.md')).toBe(problemsMarkdown());
});

test('the document is served without a key', async () => {
  const answer = await api.call('GET', '/openapi.json', undefined, { authorization: '' });
  expect(answer.status).toBe(200);
  expect(answer.json).toMatchObject({
    openapi: '3.1.0',
    components: { securitySchemes: { key: { scheme: 'bearer' } } },
  });
});

test('every documented operation exists, and asks for a key unless it says otherwise', async () => {
  for (const spec of allSpecs()) {
    const path = spec.path.replaceAll(/\{\w+\}/g, 'x');
    const answer = await api.call(spec.method.toUpperCase(), path, undefined, { authorization: '' });
    expect([spec.id, answer.status]).toEqual([spec.id, spec.open ? spec.status : 401]);
  }
});

test('operation ids are unique', () => {
  const ids = allSpecs().map((spec) => spec.id);
  expect(new Set(ids).size).toBe(ids.length);
});

test('every code of the problem table is in the document', () => {
  const { components } = openApiDocument() as {
    components: { schemas: { Problem: { properties: { code: { enum: string[] } } } } };
  };
  expect(components.schemas.Problem.properties.code.enum.sort()).toEqual(Object.keys(PROBLEMS).sort());
});

test.each([
  '{"type":"t","data":1}',
  '{"type":"t","data":null,"id":"a-b","version":7,"timestamp":"2026-01-01T00:00:00Z"}',
  '{"type":"t","data":{},"version":"9223372036854775807","id":null}',
  '{"type":"t"}',
  '{"data":1}',
  '{"type":"a b","data":1}',
  '{"type":"t","data":1,"id":"a.b"}',
  '{"type":"t","data":1,"version":-1}',
  '{"type":"t","data":1,"version":1.5}',
  '{"type":"t","data":1,"version":"x"}',
  '{"type":"t","data":1,"id":5}',
  '{"type":"t","data":1,"timestamp":5}',
  '{"type":"t","data":1,"other":5}',
  '[]',
  'null',
])('the schema of an event and its hand-written check agree about %s', (text) => {
  const value = JSON.parse(text);
  // A field that is not there is undefined to a schema, so `data` must be looked for.
  const schema = EventInputSchema.safeParse(value).success && Object.hasOwn(value, 'data');
  expect(checkEvent(value, Buffer.from(text), 0, '').ok).toBe(schema);
});
