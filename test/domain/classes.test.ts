import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
// @ts-expect-error a plain script without types
import { renderFailures } from '../../scripts/failures.mjs';
import { OUTCOME_CLASSES, type OutcomeInfo, outcomeInfo } from '../../src/domain/classes.ts';

const rows = Object.entries(OUTCOME_CLASSES) as [string, OutcomeInfo][];

test('docs/failures.md is what the table generates', () => {
  const written = readFileSync(new URL('../../docs/failures.md', import.meta.url), 'utf8');
  expect(written, 'run: node scripts/failures.mjs').toBe(renderFailures(OUTCOME_CLASSES));
});

describe('the table', () => {
  test('says one sentence of meaning and one of advice per class', () => {
    for (const [name, info] of rows) {
      for (const text of [info.meaning, info.advice]) expect(text, name).toMatch(/^[A-Z].*[^.]\.$/);
      expect(info.advice.split('. '), name).toHaveLength(1);
    }
  });

  test('never blames an endpoint for a fault of ours', () => {
    for (const [name, info] of rows) {
      if (info.whose === 'sender' && name !== 'invalid_request') expect(info.burnsAttempt, name).toBe(false);
      if (info.health === 'failure') expect(['receiver', 'network'], name).toContain(info.whose);
      const pace = name === 'stalled' ? 'minute' : 'soon'; // the receiver may be at work on it
      if (!info.burnsAttempt) expect([info.health, info.pace], name).toEqual(['neutral', pace]);
    }
  });

  test('takes 5xx, timeouts, connection and TLS faults for an outage, and nothing else', () => {
    const failures = rows.filter(([, info]) => info.health === 'failure').map(([name]) => name);
    const outage =
      /^(http_5..|dns_not_found|connect_.*|tls_.*|reset|deadline|protocol|response_headers_too_large|proxy_upstream|unknown)$/;
    expect(failures.filter((name) => !outage.test(name))).toEqual([]);
    expect(rows.filter(([name]) => outage.test(name)).every(([, info]) => info.health === 'failure')).toBe(
      true,
    );
  });

  test('tells an endpoint that refuses from one that is down, busy, or of which nothing is known', () => {
    const health = (...names: (keyof typeof OUTCOME_CLASSES)[]) =>
      names.map((name) => OUTCOME_CLASSES[name].health);
    expect(health('ok')).toEqual(['ok']);
    expect(health('http_4xx', 'http_3xx')).toEqual(['configuration', 'configuration']);
    expect(health('http_429')).toEqual(['throttled']);
    expect(new Set(health('http_408', 'http_410', 'http_425', 'local', 'worker_lost'))).toEqual(
      new Set(['neutral']),
    );
    expect(new Set(health('blocked_address', 'invalid_url', 'invalid_request'))).toEqual(
      new Set(['neutral']),
    );
  });

  test('slows down for gateways and 429, and leaves a minute to whoever may still be at work', () => {
    const paced = (pace: string) => rows.filter(([, info]) => info.pace === pace).map(([name]) => name);
    expect(paced('slower')).toEqual(['http_429', 'http_502', 'http_504']);
    expect(paced('minute')).toEqual(['http_408', 'http_425', 'deadline', 'stalled']);
    expect(paced('never')).toEqual(['ok', 'http_410', 'invalid_request']);
  });

  test('is asked by name safely', () => {
    expect(outcomeInfo('reset')).toBe(OUTCOME_CLASSES.reset);
    expect(outcomeInfo('constructor')).toBeUndefined();
  });
});
