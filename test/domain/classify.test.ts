import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OUTCOME_CLASSES, PHASES } from '../../src/domain/classes.ts';
import { classifyFault, classifyProxy, classifyStatus, type Fault } from '../../src/domain/classify.ts';

const fault = (phase: Fault['phase'], code: string, more: Partial<Fault> = {}): Fault => ({
  phase,
  code,
  name: 'Error',
  staleSocket: false,
  certificateRequested: false,
  clientCertificate: false,
  ...more,
});

describe('a status line decides', () => {
  test.each([
    [200, 'ok'],
    [204, 'ok'],
    [299, 'ok'],
    [301, 'http_3xx'],
    [304, 'http_3xx'],
    [400, 'http_4xx'],
    [404, 'http_4xx'],
    [408, 'http_408'],
    [410, 'http_410'],
    [413, 'http_4xx'],
    [425, 'http_425'],
    [429, 'http_429'],
    [494, 'http_4xx'],
    [500, 'http_5xx'],
    [501, 'http_5xx'],
    [502, 'http_502'],
    [503, 'http_503'],
    [504, 'http_504'],
    [599, 'http_5xx'],
    [600, 'protocol'],
    [999, 'protocol'],
  ] as const)('%i is %s', (status, expected) => expect(classifyStatus(status)).toBe(expected));
});

describe('the phase decides what a code means', () => {
  test.each([
    ['dns', 'ENOTFOUND', 'dns_not_found'],
    ['dns', 'ENODATA', 'dns_not_found'],
    ['dns', 'ECONNREFUSED', 'dns_temporary'],
    ['dns', 'ETIMEOUT', 'dns_temporary'],
    ['dns', 'ESERVFAIL', 'dns_temporary'],
    ['tcp', 'ECONNREFUSED', 'connect_refused'],
    ['tcp', 'ECONNRESET', 'connect_reset'],
    ['tcp', 'ETIMEDOUT', 'connect_timeout'],
    ['tcp', 'EHOSTUNREACH', 'connect_unreachable'],
    ['tcp', 'EMFILE', 'local'],
    ['tcp', 'EADDRNOTAVAIL', 'local'],
    ['proxy', 'ECONNREFUSED', 'proxy_unavailable'],
    ['proxy', 'EMFILE', 'local'],
    ['tls', 'CERT_HAS_EXPIRED', 'tls_expired'],
    ['tls', 'CERT_NOT_YET_VALID', 'tls_not_yet_valid'],
    ['tls', 'ERR_TLS_CERT_ALTNAME_INVALID', 'tls_wrong_name'],
    ['tls', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'tls_self_signed'],
    ['tls', 'SELF_SIGNED_CERT_IN_CHAIN', 'tls_untrusted_root'],
    ['tls', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls_missing_intermediate'],
    ['tls', 'CERT_REVOKED', 'tls_certificate'],
    ['tls', 'UNSPECIFIED', 'tls_certificate'],
    ['tls', 'ERR_SSL_WRONG_VERSION_NUMBER', 'tls_not_tls'],
    ['tls', 'ECONNRESET', 'tls_handshake'],
    ['tls', 'ERR_SSL_SOMETHING_NEW', 'tls_handshake'],
    ['sent', 'ECONNRESET', 'reset'],
    ['sent', 'UND_ERR_SOCKET', 'reset'],
    ['headers', 'EPIPE', 'reset'],
    ['headers', 'UND_ERR_HEADERS_OVERFLOW', 'response_headers_too_large'],
    ['headers', 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH', 'protocol'],
    ['sent', 'UND_ERR_INVALID_ARG', 'invalid_request'],
    ['sent', 'UND_ERR_DESTROYED', 'local'],
    ['sent', 'NEVER_SEEN', 'unknown'],
  ] as const)('%s %s is %s', (phase, code, expected) =>
    expect(classifyFault(fault(phase, code))).toBe(expected),
  );

  test('parser errors are known by name, for they carry no code', () => {
    expect(classifyFault(fault('sent', '', { name: 'HTTPParserError' }))).toBe('protocol');
  });

  test("a reset of a reused socket is nobody's fault", () => {
    expect(classifyFault(fault('sent', 'ECONNRESET', { staleSocket: true }))).toBe('reset_reused');
  });

  test('a cut after the handshake means the client certificate, if one was asked for', () => {
    const asked = { certificateRequested: true };
    expect(classifyFault(fault('sent', 'UND_ERR_SOCKET', asked))).toBe('tls_client_certificate_required');
    expect(classifyFault(fault('sent', 'UND_ERR_SOCKET', { ...asked, clientCertificate: true }))).toBe(
      'tls_client_certificate_refused',
    );
  });

  test('every fault has a class of the table', () => {
    const codes = fc.oneof(
      fc.string(),
      fc.constantFrom('ECONNRESET', 'ERR_SSL_X', 'CERT_X', 'constructor', '__proto__'),
    );
    fc.assert(
      fc.property(fc.constantFrom(...PHASES), codes, fc.boolean(), fc.boolean(), (phase, code, a, b) => {
        const outcome = classifyFault(fault(phase, code, { certificateRequested: a, clientCertificate: b }));
        expect(Object.hasOwn(OUTCOME_CLASSES, outcome)).toBe(true);
      }),
    );
  });
});

describe('a proxy tells its own faults from those of the receiver', () => {
  test.each([
    [407, 'host not allowed', 'blocked_address'],
    [407, null, 'proxy_refused'],
    [502, 'dial tcp: lookup nowhere.example.com: no such host', 'dns_not_found'],
    [502, 'dial tcp 192.0.2.1:443: connect: connection refused', 'connect_refused'],
    [502, null, 'proxy_upstream'],
    [504, null, 'connect_timeout'],
    [429, null, 'proxy_unavailable'],
    [503, null, 'proxy_unavailable'],
    [500, null, 'proxy_unavailable'],
  ] as const)('%i with %j is %s', (status, text, expected) =>
    expect(classifyProxy(status, text)).toBe(expected),
  );
});
