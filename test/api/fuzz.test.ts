/** Whatever is sent to whichever route, the answer is never a fault of ours. Tables of kinds are in hostile.test.ts. */
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import { allSpecs } from '../../src/api/openapi.ts';
import { newId } from '../../src/ids.ts';
import { rig } from './support.ts';

const api = rig();
const paths = [...new Set(allSpecs().map((spec) => spec.path))];

const odd = fc.oneof(
  fc.constantFrom(
    'acme',
    '..',
    '%2e%2e',
    "'; --",
    '%00',
    '%F0%9F%98%80',
    'a/b',
    '%',
    ' ',
    'x'.repeat(300),
    '__proto__',
  ),
  fc.constantFrom('evt', 'ep', 'dlv', 'key').map((prefix) => newId(prefix as 'evt')),
  fc.string({ maxLength: 20 }).map(encodeURIComponent),
);
const path = fc
  .tuple(fc.constantFrom(...paths), fc.array(odd, { minLength: 4, maxLength: 4 }))
  .map(([template, parts]) => {
    let at = 0;
    return template.replaceAll(/\{\w+\}/g, () => parts[at++] as string);
  });
const query = fc
  .array(
    fc.tuple(
      fc.constantFrom(
        'limit',
        'cursor',
        'since',
        'until',
        'state',
        'status',
        'class',
        'event',
        'endpoint',
        'type',
        'mode',
        'id',
        'x',
      ),
      fc.oneof(
        fc.constantFrom('', '1', '-1', 'raw', 't', '2026-01-01T00:00:00Z', '200', 'dead', '%00'),
        fc.string({ maxLength: 12 }).map(encodeURIComponent),
      ),
    ),
    { maxLength: 3 },
  )
  .map((pairs) =>
    pairs.length === 0 ? '' : `?${pairs.map(([name, value]) => `${name}=${value}`).join('&')}`,
  );

const fields = [
  'type',
  'data',
  'id',
  'version',
  'timestamp',
  'events',
  'url',
  'headers',
  'limits',
  'tls',
  'retry_policy',
];
const more = [
  'event_types',
  'secret',
  'name',
  'weight',
  'notify_emails',
  'grace',
  'kind',
  'description',
  'traceparent',
  'other',
];
const value = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom(
    't',
    'https://example.com/',
    'http://127.0.0.1:1/',
    '\ud800',
    '\0',
    1e300,
    -0,
    [],
    {},
    [{ type: 't', data: 1 }],
    { in_flight: 5 },
    { preset: 'default' },
    { 'x-a': 'b' },
    '24h',
    'whsec_AAAA',
  ),
);
const body = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .dictionary(fc.constantFrom(...fields, ...more), value, { maxKeys: 5 })
      .map((each) => JSON.stringify(each)),
  },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)) },
);

afterAll(() => {
  expect(api.logged.filter((line) => line.includes('"level":"error"'))).toEqual([]);
});

test('no request makes us fail', { timeout: 60_000 }, async () => {
  await api.call('PUT', '/v1/tenants/acme', {});
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('GET', 'POST', 'PUT', 'PATCH', 'DELETE'),
      path,
      query,
      body,
      async (method, where, rest, content) => {
        const answer = await api.call(method, where + rest, method === 'GET' ? undefined : content);
        expect(answer.status).toBeLessThan(500);
        if (answer.status >= 400) expect(answer.json.code).toMatch(/^[a-z_0-9]+$/);
        // The tenant is the only thing these requests may take from each other.
        if (method === 'DELETE' && answer.status === 204) await api.call('PUT', '/v1/tenants/acme', {});
      },
    ),
    { numRuns: 1_500, interruptAfterTimeLimit: 30_000 },
  );
});
