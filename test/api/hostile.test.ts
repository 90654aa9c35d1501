/**
 * Bad input by kind: every one gets a problem document that names what is wrong, none a 500, and nothing is written.
 */
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADMIN_KEY, MAX_EVENT_BYTES, rig } from './support.ts';

const api = rig();
const EVENTS = '/v1/tenants/acme/events';
const BATCH = `${EVENTS}/batch`;
const ENDPOINTS = '/v1/tenants/acme/endpoints';
const long = (n: number) => 'x'.repeat(n);
const event = (fields: string) => `{"type":"t","data":1,${fields}}`;

beforeAll(async () => {
  await api.call('PUT', '/v1/tenants/acme', {});
});

afterAll(async () => {
  const { rows } = await api.db.query(
    `select (select count(*) from posthaste.events) as events, (select count(*) from posthaste.outbox) as outbox,
      (select count(*) from posthaste.event_keys) as ids, (select count(*) from posthaste.idempotency_keys) as keys,
      (select count(*) from posthaste.endpoints) as endpoints, (select count(*) from posthaste.tenants where id <> 'posthaste') as tenants`,
  );
  expect(rows[0]).toEqual({ events: 0, outbox: 0, ids: 0, keys: 0, endpoints: 0, tenants: 1 });
  expect(api.logged).toEqual([]);
});

type Body = string | Uint8Array | undefined;
type Kind = [
  name: string,
  method: string,
  path: string,
  body: Body,
  status: number,
  code: string,
  where?: string | undefined,
  headers?: Record<string, string>,
];

// biome-ignore format: a table is read in rows
const kinds: Kind[] = [
  ['text that is not JSON', 'POST', EVENTS, '{"type":', 400, 'malformed_json'],
  ['two JSON texts', 'POST', EVENTS, '{} {}', 400, 'malformed_json'],
  ['a byte order mark', 'POST', EVENTS, '\ufeff{}', 400, 'malformed_json'],
  ['NaN', 'POST', EVENTS, '{"type":"t","data":NaN}', 400, 'malformed_json'],
  ['single quotes', 'POST', EVENTS, "{'type':'t'}", 400, 'malformed_json'],
  ['a NUL character in the text', 'POST', EVENTS, '{"type":"t","data":"\0"}', 400, 'malformed_json'],
  ['an empty body', 'POST', EVENTS, '', 400, 'body_missing'],
  ['invalid UTF-8', 'POST', EVENTS, Buffer.from('7b2274797065223a22ff227d', 'hex'), 400, 'malformed_utf8'],
  ['a surrogate as UTF-8', 'POST', EVENTS, Buffer.from('7b2261223a22eda080227d', 'hex'), 400, 'malformed_utf8'],
  ['UTF-16', 'POST', EVENTS, Buffer.from('{"type":"t"}', 'utf16le'), 400, 'malformed_json'],
  ['an unknown content type', 'POST', EVENTS, '{}', 415, 'unsupported_media_type', undefined, { 'content-type': 'text/yaml' }],
  ['a form', 'POST', EVENTS, 'type=t', 415, 'unsupported_media_type', undefined, { 'content-type': 'application/x-www-form-urlencoded' }],
  ['an unknown charset', 'POST', EVENTS, '{}', 415, 'unsupported_media_type', undefined, { 'content-type': 'application/json; charset=utf-16' }],
  ['gzip', 'POST', EVENTS, gzipSync('{}'), 415, 'unsupported_encoding', undefined, { 'content-encoding': 'gzip' }],
  ['an unknown encoding', 'POST', ENDPOINTS, '{}', 415, 'unsupported_encoding', undefined, { 'content-encoding': 'zip' }],
  ['a list for an event', 'POST', EVENTS, '[]', 422, 'invalid_fields', ''],
  ['a number for an event', 'POST', EVENTS, '1', 422, 'invalid_fields', ''],
  ['null for an event', 'POST', EVENTS, 'null', 422, 'invalid_fields', ''],
  ['no data', 'POST', EVENTS, '{"type":"t"}', 422, 'invalid_fields', '/data'],
  ['no type', 'POST', EVENTS, '{"data":1}', 422, 'invalid_fields', '/type'],
  ['an unknown field', 'POST', EVENTS, event('"payload":1'), 422, 'invalid_fields', '/payload'],
  ['a field given twice', 'POST', EVENTS, event('"data":2'), 422, 'invalid_fields', '/data'],
  ['__proto__', 'POST', EVENTS, event('"__proto__":1'), 422, 'invalid_fields', '/__proto__'],
  ['a NUL character in the type', 'POST', EVENTS, '{"type":"a\\u0000","data":1}', 422, 'invalid_fields', '/type'],
  ['a lone surrogate in the id', 'POST', EVENTS, event('"id":"\\ud800"'), 422, 'invalid_fields', '/id'],
  ['a huge number as version', 'POST', EVENTS, event('"version":1e999'), 422, 'invalid_fields', '/version'],
  ['2^63 as version', 'POST', EVENTS, event('"version":9223372036854775808'), 422, 'invalid_fields', '/version'],
  ['the year 0 as timestamp', 'POST', EVENTS, event('"timestamp":"0000-01-01T00:00:00Z"'), 422, 'invalid_fields', '/timestamp'],
  ['data one byte too large', 'POST', EVENTS, `{"type":"t","data":"${long(MAX_EVENT_BYTES - 1)}"}`, 413, 'event_too_large', '/data'],
  ['a body far too large', 'POST', EVENTS, `{"type":"t","data":"${long(MAX_EVENT_BYTES * 3)}"}`, 413, 'event_too_large'],
  ['100,000 levels of unclosed nesting', 'POST', EVENTS, `{"type":"t","data":${'['.repeat(100_000)}}`, 400, 'malformed_json'],
  ['unclosed nesting', 'POST', EVENTS, `{"type":"t","data":${'['.repeat(30_000)}}`, 400, 'malformed_json'],
  ['a parameter of raw mode', 'POST', `${EVENTS}?type=t`, '{}', 400, 'invalid_parameters', 'type'],
  ['an unknown mode', 'POST', `${EVENTS}?mode=cooked`, '{}', 400, 'invalid_parameters', 'mode'],
  ['an unknown parameter', 'POST', `${EVENTS}?dry_run=1`, '{}', 400, 'invalid_parameters', 'dry_run'],
  ['raw mode without a type', 'POST', `${EVENTS}?mode=raw`, 'x', 400, 'invalid_parameters', 'type'],
  ['a bad id in raw mode', 'POST', `${EVENTS}?mode=raw&type=t&id=a.b`, 'x', 400, 'invalid_parameters', 'id'],
  ['two different ids in raw mode', 'POST', `${EVENTS}?mode=raw&type=t&id=a`, 'x', 400, 'invalid_parameters', 'webhook-id', { 'webhook-id': 'b' }],
  ['a parameter given twice', 'POST', `${EVENTS}?mode=raw&type=t&type=u`, 'x', 400, 'invalid_parameters', 'type'],
  ['a raw body one byte too large', 'POST', `${EVENTS}?mode=raw&type=t`, long(MAX_EVENT_BYTES + 1), 413, 'event_too_large'],
  ['a long content type in raw mode', 'POST', `${EVENTS}?mode=raw&type=t`, 'x', 400, 'invalid_parameters', 'content-type', { 'content-type': `a/${long(120)}` }],
  ['an Idempotency-Key with a space', 'POST', EVENTS, '{}', 400, 'invalid_parameters', 'idempotency-key', { 'idempotency-key': 'a b' }],
  ['a long Idempotency-Key', 'POST', EVENTS, '{}', 400, 'invalid_parameters', 'idempotency-key', { 'idempotency-key': long(256) }],
  ['an unknown tenant', 'POST', '/v1/tenants/nobody/events', '{"type":"t","data":1}', 404, 'tenant_not_found'],
  ['an unknown tenant, with an id', 'POST', '/v1/tenants/nobody/events', event('"id":"a"'), 404, 'tenant_not_found'],
  ['an unknown tenant, with a key', 'POST', '/v1/tenants/nobody/events', '{"type":"t","data":1}', 404, 'tenant_not_found', undefined, { 'idempotency-key': 'k' }],
  ['a batch for an unknown tenant', 'POST', '/v1/tenants/nobody/events/batch', '{"events":[{"type":"t","data":1}]}', 404, 'tenant_not_found'],
  ['an impossible tenant', 'POST', '/v1/tenants/no%20body/events', '{"type":"t","data":1}', 404, 'tenant_not_found'],
  ['a batch that is a list', 'POST', BATCH, '[]', 422, 'invalid_fields', ''],
  ['a batch without events', 'POST', BATCH, '{}', 422, 'invalid_fields', '/events'],
  ['an empty batch', 'POST', BATCH, '{"events":[]}', 422, 'invalid_fields', '/events'],
  ['a batch with another field', 'POST', BATCH, '{"events":[{"type":"t","data":1}],"all":true}', 422, 'invalid_fields', '/all'],
  ['a batch with its events twice', 'POST', BATCH, '{"events":[],"events":[{"type":"t","data":1}]}', 422, 'invalid_fields', '/events'],
  ['a batch of 1,001', 'POST', BATCH, `{"events":[${Array(1001).fill('{"type":"t","data":1}').join(',')}]}`, 413, 'body_too_large', '/events'],
  ['a batch with one bad event', 'POST', BATCH, '{"events":[{"type":"t","data":1},{"type":"","data":1}]}', 422, 'invalid_fields', '/events/1/type'],
  ['a batch that is too large in sum', 'POST', BATCH, `{"events":[{"type":"t","data":"${long(MAX_EVENT_BYTES * 33)}"}]}`, 413, 'body_too_large'],
  ['a batch with one large event', 'POST', BATCH, `{"events":[{"type":"t","data":1},{"type":"t","data":"${long(MAX_EVENT_BYTES)}"}]}`, 413, 'event_too_large', '/events/1/data'],
  ['a batch with an event that is a number', 'POST', BATCH, '{"events":[1]}', 422, 'invalid_fields', '/events/0'],
  ['a batch with one id twice and two contents', 'POST', BATCH, '{"events":[{"type":"t","data":1,"id":"a"},{"type":"t","data":2,"id":"a"}]}', 409, 'event_conflict', '/events/1/id'],

  ['a bad tenant id', 'PUT', '/v1/tenants/a%20b', '{}', 400, 'invalid_parameters', 'tenant'],
  ['a tenant id of 65 characters', 'PUT', `/v1/tenants/${long(65)}`, '{}', 400, 'invalid_parameters', 'tenant'],
  ['a NUL character in a tenant id', 'PUT', '/v1/tenants/a%00', '{}', 400, 'invalid_parameters', 'tenant'],
  ['bad percent-encoding', 'GET', '/v1/tenants/%zz', undefined, 400, 'malformed_path'],
  ['percent-encoded invalid UTF-8', 'GET', '/v1/tenants/%ff', undefined, 400, 'malformed_path'],
  ['an unknown field of a tenant', 'PUT', '/v1/tenants/b', '{"quotas":{}}', 422, 'invalid_fields', '/quotas'],
  ['a weight of 0', 'PUT', '/v1/tenants/b', '{"weight":0}', 422, 'invalid_fields', '/weight'],
  ['a weight of 1.5', 'PUT', '/v1/tenants/b', '{"weight":1.5}', 422, 'invalid_fields', '/weight'],
  ['a huge weight', 'PUT', '/v1/tenants/b', '{"weight":1e400}', 422, 'invalid_fields', '/weight'],
  ['a name with NUL', 'PUT', '/v1/tenants/b', '{"name":"a\\u0000"}', 422, 'invalid_fields', '/name'],
  ['a name with a lone surrogate', 'PUT', '/v1/tenants/b', '{"name":"\\udc00"}', 422, 'invalid_fields', '/name'],
  ['a long name', 'PUT', '/v1/tenants/b', JSON.stringify({ name: long(257) }), 422, 'invalid_fields', '/name'],
  ['a name that is a list', 'PUT', '/v1/tenants/b', '{"name":[]}', 422, 'invalid_fields', '/name'],
  ['a bad e-mail address', 'PUT', '/v1/tenants/b', '{"notify_emails":["a@b.c","x\\r\\nbcc: y@z.a"]}', 422, 'invalid_fields', '/notify_emails/1'],
  ['a tenant that is a string', 'PUT', '/v1/tenants/b', '"b"', 422, 'invalid_fields', ''],
  ['a change of an unknown tenant', 'PATCH', '/v1/tenants/b', '{}', 404, 'tenant_not_found'],
  ['a change without a body', 'PATCH', '/v1/tenants/acme', undefined, 400, 'body_missing'],
  ['the deletion of an unknown tenant', 'DELETE', '/v1/tenants/b', undefined, 404, 'tenant_not_found'],

  ['an endpoint without a URL', 'POST', ENDPOINTS, '{}', 422, 'invalid_fields', '/url'],
  ['a URL that is a number', 'POST', ENDPOINTS, '{"url":1}', 422, 'invalid_fields', '/url'],
  ['a URL with NUL', 'POST', ENDPOINTS, '{"url":"https://a.com/\\u0000"}', 422, 'invalid_fields', '/url'],
  ['a private address', 'POST', ENDPOINTS, '{"url":"https://10.0.0.1/"}', 422, 'invalid_fields', '/url'],
  ['a disguised address', 'POST', ENDPOINTS, '{"url":"https://0x7f.1/"}', 422, 'invalid_fields', '/url'],
  ['plain http', 'POST', ENDPOINTS, '{"url":"http://93.184.216.34/"}', 422, 'invalid_fields', '/url'],
  ['a file', 'POST', ENDPOINTS, '{"url":"file:///etc/passwd"}', 422, 'invalid_fields', '/url'],
  ['a URL with a password', 'POST', ENDPOINTS, '{"url":"https://a:b@c.com/"}', 422, 'invalid_fields', '/url'],
  ['an unknown limit', 'POST', ENDPOINTS, '{"url":"https://a.com","limits":{"rate_per_second":5}}', 422, 'invalid_fields', '/limits/rate_per_second'],
  ['a cap of 0', 'POST', ENDPOINTS, '{"url":"https://a.com","limits":{"in_flight":0}}', 422, 'invalid_fields', '/limits/in_flight'],
  ['a timeout of an hour', 'POST', ENDPOINTS, '{"url":"https://a.com","limits":{"timeout_ms":3600000}}', 422, 'invalid_fields', '/limits/timeout_ms'],
  ['an empty list of types', 'POST', ENDPOINTS, '{"url":"https://a.com","event_types":[]}', 422, 'invalid_fields', '/event_types'],
  ['a bad type', 'POST', ENDPOINTS, '{"url":"https://a.com","event_types":["a","b c"]}', 422, 'invalid_fields', '/event_types/1'],
  ['a bad schedule', 'POST', ENDPOINTS, '{"url":"https://a.com","retry_policy":{"schedule":["5s","soon"]}}', 422, 'invalid_fields', '/retry_policy/schedule/1'],
  ['a retry policy that is a string', 'POST', ENDPOINTS, '{"url":"https://a.com","retry_policy":"default"}', 422, 'invalid_fields', '/retry_policy'],
  ['a forbidden header', 'POST', ENDPOINTS, '{"url":"https://a.com","headers":{"Webhook-Id":"x"}}', 422, 'invalid_fields', '/headers/Webhook-Id'],
  ['a header with a line break', 'POST', ENDPOINTS, '{"url":"https://a.com","headers":{"x-a":"b\\r\\nhost: c"}}', 422, 'invalid_fields', '/headers/x-a'],
  ['a header that is a number', 'POST', ENDPOINTS, '{"url":"https://a.com","headers":{"x-a":1}}', 422, 'invalid_fields', '/headers/x-a'],
  ['a header named __proto__', 'POST', ENDPOINTS, '{"url":"https://a.com","headers":{"__proto__":"x"}}', 422, 'invalid_fields', '/headers/__proto__'],
  ['headers that are a list', 'POST', ENDPOINTS, '{"url":"https://a.com","headers":["x-a: b"]}', 422, 'invalid_fields', '/headers'],
  ['headers that do not fit', 'POST', ENDPOINTS, JSON.stringify({ url: 'https://a.com', headers: { 'x-a': long(1025) } }), 422, 'invalid_fields', '/headers/x-a'],
  ['a certificate without a key', 'POST', ENDPOINTS, '{"url":"https://a.com","tls":{"client_certificate":"x"}}', 422, 'invalid_fields', '/tls/client_certificate'],
  ['a key without a certificate', 'POST', ENDPOINTS, '{"url":"https://a.com","tls":{"client_key":"x"}}', 422, 'invalid_fields', '/tls/client_certificate'],
  ['rubbish as CA bundle', 'POST', ENDPOINTS, '{"url":"https://a.com","tls":{"ca_bundle":"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----"}}', 422, 'invalid_fields', '/tls/ca_bundle'],
  ['a way around verification', 'POST', ENDPOINTS, '{"url":"https://a.com","tls":{"verify":false}}', 422, 'invalid_fields', '/tls/verify'],
  ['a short secret', 'POST', ENDPOINTS, '{"url":"https://a.com","secret":"whsec_AAAA"}', 422, 'invalid_fields', '/secret'],
  ['a secret without a prefix', 'POST', ENDPOINTS, JSON.stringify({ url: 'https://a.com', secret: long(40) }), 422, 'invalid_fields', '/secret'],
  ['a secret of another kind', 'POST', ENDPOINTS, JSON.stringify({ url: 'https://a.com', secret_kind: 'ed25519', secret: `whsec_${Buffer.alloc(32).toString('base64')}`, }), 422, 'invalid_fields', '/secret_kind'],
  ['an endpoint for an unknown tenant', 'POST', '/v1/tenants/nobody/endpoints', '{"url":"https://a.com"}', 404, 'tenant_not_found'],
  ['a list for an unknown tenant', 'GET', '/v1/tenants/nobody/endpoints', undefined, 404, 'tenant_not_found'],
  ['an unknown endpoint', 'GET', `${ENDPOINTS}/ep_01KD5V3Q9BC6PK4RVB9ZY3MXW8`, undefined, 404, 'endpoint_not_found'],
  ['an impossible endpoint', 'DELETE', `${ENDPOINTS}/1'--`, undefined, 404, 'endpoint_not_found'],
  ['the rotation of an unknown endpoint', 'POST', `${ENDPOINTS}/ep_01KD5V3Q9BC6PK4RVB9ZY3MXW8/secret/rotate`, undefined, 404, 'endpoint_not_found'],
  ['an unknown event', 'GET', `${EVENTS}/nope`, undefined, 404, 'event_not_found'],
  ['an unknown event to resend', 'POST', `${EVENTS}/evt_01KD5V3Q9BC6PK4RVB9ZY3MXW8/resend`, undefined, 404, 'event_not_found'],
  ['an unknown delivery', 'GET', '/v1/tenants/acme/deliveries/dlv_01KD5V3Q9BC6PK4RVB9ZY3MXW8', undefined, 404, 'delivery_not_found'],
  ['an unknown delivery to resend', 'POST', '/v1/tenants/acme/deliveries/dlv_01KD5V3Q9BC6PK4RVB9ZY3MXW8/resend', undefined, 404, 'delivery_not_found'],
  ['an impossible delivery to cancel', 'POST', '/v1/tenants/acme/deliveries/x/cancel', undefined, 404, 'delivery_not_found'],
  ['an id with the largest time', 'GET', '/v1/tenants/acme/deliveries/dlv_ZZZZZZZZZZZZZZZZZZZZZZZZZZ/attempts', undefined, 404, 'delivery_not_found'],
  ['an event id with the largest time', 'GET', `${EVENTS}/evt_7ZZZZZZZZZ0000000000000000`, undefined, 404, 'event_not_found'],
  ['a limit of 0', 'GET', `${EVENTS}?limit=0`, undefined, 400, 'invalid_parameters', 'limit'],
  ['a limit of 201', 'GET', `${EVENTS}?limit=201`, undefined, 400, 'invalid_parameters', 'limit'],
  ['a limit of a lot', 'GET', `${EVENTS}?limit=99999999999999999999`, undefined, 400, 'invalid_parameters', 'limit'],
  ['a limit that is a word', 'GET', `${EVENTS}?limit=all`, undefined, 400, 'invalid_parameters', 'limit'],
  ['a cursor of our own making', 'GET', `${EVENTS}?cursor=abc`, undefined, 400, 'cursor_invalid', 'cursor'],
  ['an empty cursor', 'GET', `${EVENTS}?cursor=`, undefined, 400, 'cursor_invalid', 'cursor'],
  ['a filter with NUL', 'GET', `${EVENTS}?type=a%00`, undefined, 400, 'invalid_parameters', 'type'],
  ['a bad time', 'GET', `${EVENTS}?since=yesterday`, undefined, 400, 'invalid_parameters', 'since'],
  ['a bad state', 'GET', '/v1/tenants/acme/deliveries?state=lost', undefined, 400, 'invalid_parameters', 'state'],
  ['a bad status', 'GET', '/v1/tenants/acme/deliveries?status=2xx', undefined, 400, 'invalid_parameters', 'status'],
  ['a bad class', 'GET', '/v1/tenants/acme/deliveries?class=odd', undefined, 400, 'invalid_parameters', 'class'],
  ['a bad endpoint filter', 'GET', '/v1/tenants/acme/deliveries?endpoint=1', undefined, 400, 'invalid_parameters', 'endpoint'],
  ['a key without a name', 'POST', '/v1/keys', '{"name":""}', 422, 'invalid_fields', '/name'],
  ['an unknown key', 'DELETE', '/v1/keys/key_01KD5V3Q9BC6PK4RVB9ZY3MXW8', undefined, 404, 'key_not_found'],
  ['the admin key', 'DELETE', '/v1/keys/key_admin', undefined, 409, 'key_protected'],
  ['an unknown path', 'GET', '/v1/nothing', undefined, 404, 'not_found'],
  ['an unknown path outside', 'GET', '/admin.php', undefined, 404, 'not_found'],
  ['a trailing slash', 'GET', '/v1/tenants/', undefined, 404, 'not_found'],
  ['a route that comes later', 'POST', `${ENDPOINTS}/ep_01KD5V3Q9BC6PK4RVB9ZY3MXW8/pause`, undefined, 404, 'not_found'],
  ['a wrong method', 'DELETE', EVENTS, undefined, 405, 'method_not_allowed'],
  ['an unknown method', 'PURGE', '/v1/tenants', undefined, 405, 'method_not_allowed'],
];

test.each(kinds)('refuses %s', async (_, method, path, body, status, code, where, headers) => {
  const answer = await api.call(method, path, body, headers);
  expect([answer.status, answer.json?.code]).toEqual([status, code]);
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  expect(answer.json).toMatchObject({ status, type: `/problems#${code}` });
  expect(answer.json.request_id).toBe(answer.headers.get('x-request-id'));
  if (where !== undefined) {
    const places = answer.json.errors.map(
      (error: { pointer?: string; parameter?: string }) => error.pointer ?? error.parameter,
    );
    expect(places).toContain(where);
  }
});

describe('over a bare socket', () => {
  /** Sends bytes and answers what came back until the server ends the connection, or says the first whole answer. */
  function raw(text: string | Buffer, end = false): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = connect(api.api.port, '127.0.0.1');
      let answer = '';
      const finish = () => {
        socket.destroy();
        resolve(answer);
      };
      socket.on('error', reject).on('end', finish);
      socket.on('data', (chunk) => {
        answer += chunk.toString();
        const length = /content-length: (\d+)/i.exec(answer);
        const at = answer.indexOf('\r\n\r\n');
        if (length && at > 0 && answer.length >= at + 4 + Number(length[1])) finish();
      });
      socket.on('connect', () => (end ? socket.end(text) : socket.write(text)));
    });
  }
  const head = (lines: string) =>
    `POST ${EVENTS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${ADMIN_KEY}\r\ncontent-type: application/json\r\n${lines}\r\n\r\n`;

  test.each([
    ['nonsense', 'hello\r\n\r\n', 400, 'malformed_request'],
    ['a content-length that is a word', head('content-length: ten'), 400, 'malformed_request'],
    ['two content-lengths', head('content-length: 2\r\ncontent-length: 3'), 400, 'malformed_request'],
    [
      'content-length and chunks',
      head('content-length: 2\r\ntransfer-encoding: chunked'),
      400,
      'malformed_request',
    ],
    ['a bad chunk', `${head('transfer-encoding: chunked')}zz\r\n`, 400, 'malformed_request'],
    ['a header of 20 KB', head(`x-long: ${long(20_000)}`), 431, 'head_too_large'],
    ['a host with a path', 'GET /livez HTTP/1.1\r\nhost: a/b@c\r\n\r\n', 400, 'malformed_request'],
    [
      'TRACE',
      `TRACE /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${ADMIN_KEY}\r\n\r\n`,
      405,
      'method_not_allowed',
    ],
    [
      'an absolute target of elsewhere',
      'GET http://other.example/nothing HTTP/1.1\r\nhost: x\r\n\r\n',
      404,
      'not_found',
    ],
    ['an announced body far too large', head('content-length: 999999999999'), 413, 'event_too_large'],
  ])('%s is answered with a problem', async (_, text, status, code) => {
    const answer = await raw(text);
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(answer).toContain('application/problem+json');
    expect(answer).toContain(`"code":"${code}"`);
  });

  test('chunks that never end are cut off at the limit', async () => {
    const chunk = `4000\r\n${long(0x4000)}\r\n`;
    const answer = await raw(`${head('transfer-encoding: chunked')}${chunk.repeat(20)}`);
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
    expect(answer).toMatch(/connection: close/i);
  });

  test('a body shorter than its content-length writes nothing', async () => {
    await raw(`${head('content-length: 1000')}{"type":"t","data":1}`, true);
  });

  test('a missing host does no harm', async () => {
    expect(await raw('GET /livez HTTP/1.1\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /);
  });
});
