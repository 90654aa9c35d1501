import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Deficits, pickTurns, type TenantQueue } from '../../src/domain/fairness.ts';

const queue = (tenant: string, change: Partial<TenantQueue> = {}): TenantQueue => ({
  tenant,
  waiting: 1_000,
  weight: 1,
  costMs: 5,
  fanOut: 1,
  room: 1_000,
  ...change,
});
const taken = (turns: { tenant: string; events: number }[], tenant: string): number =>
  turns.find((turn) => turn.tenant === tenant)?.events ?? 0;

describe('pickTurns', () => {
  it('shares a round evenly between a flood and a trickle', () => {
    const turns = pickTurns(
      [queue('flood', { waiting: 1_000_000 }), queue('trickle', { waiting: 3 })],
      new Map(),
      100,
    );
    expect(taken(turns, 'trickle')).toBe(3);
    expect(taken(turns, 'flood')).toBe(97);
  });

  it('gives a tenant whose receivers are slow fewer events for the same worker time', () => {
    const deficits: Deficits = new Map();
    const sums = { slow: 0, quick: 0 };
    for (let i = 0; i < 50; i++) {
      const turns = pickTurns([queue('slow', { costMs: 100 }), queue('quick', { costMs: 5 })], deficits, 50);
      sums.slow += taken(turns, 'slow');
      sums.quick += taken(turns, 'quick');
    }
    expect(sums.quick / sums.slow).toBeGreaterThan(12);
    expect(sums.slow).toBeGreaterThan(20);
  });

  it('gives double weight double turns', () => {
    const turns = pickTurns([queue('a', { weight: 2 }), queue('b')], new Map(), 300);
    expect(taken(turns, 'a') / taken(turns, 'b')).toBeCloseTo(2, 0);
  });

  it('takes one event of a tenant whose events have more endpoints than it has room', () => {
    expect(taken(pickTurns([queue('wide', { fanOut: 700, room: 500 })], new Map(), 500), 'wide')).toBe(1);
    expect(pickTurns([queue('full', { room: 0 })], new Map(), 500)).toEqual([]);
  });

  it('never takes more than waits, and serves everyone when there is room for all', () => {
    const queues = fc.uniqueArray(
      fc.record({
        tenant: fc.string({ minLength: 1, maxLength: 3 }),
        waiting: fc.integer({ min: 1, max: 50 }),
        weight: fc.integer({ min: 1, max: 100 }),
        costMs: fc.double({ min: 1, max: 500, noNaN: true }),
        fanOut: fc.constantFrom(0.2, 1, 3),
        room: fc.constant(100_000),
      }),
      { selector: (q) => q.tenant, minLength: 1, maxLength: 20 },
    );
    fc.assert(
      fc.property(queues, (all) => {
        const turns = pickTurns(all, new Map(), 1_000_000);
        for (const q of all) expect(taken(turns, q.tenant)).toBe(q.waiting);
      }),
    );
  });
});
