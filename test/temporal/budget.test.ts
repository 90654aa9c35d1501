import { describe, expect, it } from 'vitest';
import { createStartBudget } from '../../src/temporal/budget.ts';

describe('the start budget', () => {
  it('lets groups of first attempts start at least 8 times a second, however slow Temporal was', () => {
    const budget = createStartBudget(0, () => 0);
    for (let s = 1; s <= 60; s++) budget.observe(5_000, s * 1_000);
    let groups = 0;
    for (let ms = 60_000; ms < 70_000; ms += 10) if (budget.take('group', ms)) groups++;
    expect(groups).toBeGreaterThanOrEqual(80);
    expect(groups).toBeLessThan(100);
  });

  it('starts nothing while too much is outstanding; singles give way first', () => {
    let outstanding = 0;
    const budget = createStartBudget(0, () => outstanding);
    expect(budget.available('single', 10_000)).toBeGreaterThan(0);
    outstanding = 4;
    expect(budget.available('single', 10_000)).toBe(0);
    expect(budget.take('single', 10_000)).toBe(false);
    expect(budget.take('group', 10_000)).toBe(true);
    outstanding = 6;
    expect(budget.take('group', 20_000)).toBe(false);
    expect(budget.waitMs('group', 20_000)).toBeGreaterThan(0);
  });

  it('grows while starts are quick and shrinks while they are slow', () => {
    const budget = createStartBudget(0, () => 0);
    const initial = budget.rate();
    for (let ms = 0; ms < 30_000; ms += 100) budget.observe(30, ms);
    const grown = budget.rate();
    expect(grown).toBeGreaterThan(initial);
    for (let ms = 30_000; ms < 40_000; ms += 100) budget.observe(900, ms);
    expect(budget.rate()).toBeLessThan(grown / 2);
  });

  it('keeps single starts within their share', () => {
    const budget = createStartBudget(0, () => 0);
    let singles = 0;
    for (let ms = 0; ms < 10_000; ms += 1) if (budget.take('single', ms)) singles++;
    expect(singles).toBeLessThanOrEqual((budget.rate() - 8) * 10 + 12);
  });

  it('brings a rate that overload cut back in silence, when nothing is measured', () => {
    const budget = createStartBudget(0, () => 0);
    const initial = budget.rate();
    for (let ms = 0; ms < 20_000; ms += 500) budget.observe(5_000, ms);
    expect(budget.rate()).toBeLessThan(initial / 2);
    for (let ms = 20_000; ms < 60_000; ms += 1_000) budget.available('endpoint', ms);
    expect(budget.rate()).toBe(initial);
  });

  it('gives the scanner, which asks once a second, what the second brought', () => {
    const budget = createStartBudget(0, () => 0);
    let taken = 0;
    for (let ms = 1_000; ms <= 10_000; ms += 1_000) while (budget.take('endpoint', ms)) taken++;
    expect(taken).toBeGreaterThanOrEqual(18);
  });

  it('gives what can wait in its row little of it, and first attempts’ groups no more than ten a second', () => {
    const budget = createStartBudget(0, () => 0);
    for (let ms = 0; ms < 60_000; ms += 100) budget.observe(30, ms);
    const taken = { group: 0, retry: 0 };
    for (let ms = 60_000; ms < 70_000; ms += 5) {
      if (budget.take('group', ms)) taken.group++;
      if (budget.take('retry', ms)) taken.retry++;
    }
    expect(taken.group).toBeGreaterThan(90);
    expect(taken.group).toBeLessThanOrEqual(102);
    expect(taken.retry).toBeGreaterThanOrEqual(18);
    expect(taken.retry).toBeLessThanOrEqual(21);
  });
});
