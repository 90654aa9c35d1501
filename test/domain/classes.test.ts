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
      if (info.countsForBreaker) expect(['receiver', 'network'], name).toContain(info.whose);
    }
  });

  test('counts no 4xx for the breaker, and every 5xx', () => {
    for (const [name, info] of rows)
      if (/^http_4/.test(name)) expect(info.countsForBreaker, name).toBe(false);
    expect(OUTCOME_CLASSES.http_5xx.countsForBreaker).toBe(true);
  });

  test('is asked by name safely', () => {
    expect(outcomeInfo('reset')).toBe(OUTCOME_CLASSES.reset);
    expect(outcomeInfo('constructor')).toBeUndefined();
  });
});
