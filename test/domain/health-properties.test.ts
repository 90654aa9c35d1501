/** What holds for any sequence of results. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Fact, parseHealthState, reduceHealth, type Seen } from '../../src/domain/health.ts';
import { factAt, Subject, seenAt, T0 } from '../support/health.ts';

const EDITS = [null, null, null, null, 'edit', 'enable', 'resume', 'pause', 'drained', 'overloaded'] as const;
const count = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(30));
const anyFact: fc.Arbitrary<Partial<Fact>> = fc.record({
  ok: count,
  fail: count,
  throttled: count,
  config: count,
  neutral: fc.nat(2),
  slow: fc.nat(5),
  lost: fc.nat(1),
  deliveries: fc.array(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 5 }),
  edit: fc.constantFrom(...EDITS),
});
const anyStep = fc.record({
  waitS: fc.oneof(fc.nat(20), fc.nat(4_000)),
  facts: fc.array(anyFact, { maxLength: 3 }),
  change: fc.record({
    held: fc.constantFrom(0, 1, 800),
    sendRate: fc.double({ min: 0, max: 500, noNaN: true }),
  }),
  frozen: fc.nat(9).map((n) => n === 0),
});
const anyLife = fc.array(anyStep, { minLength: 1, maxLength: 40 });
type Life = typeof anyLife extends fc.Arbitrary<infer T> ? T : never;

function live(steps: Life, each: (subject: Subject, before: Subject['state']) => void) {
  const subject = new Subject();
  let second = 0;
  for (const { waitS, facts, change, frozen } of steps) {
    const before = subject.state;
    second += waitS;
    subject.step(second, facts, change as Partial<Seen>, frozen);
    each(subject, before);
  }
}
const gated = (health: string | undefined) =>
  ['open', 'half_open', 'misconfigured'].includes(health ?? 'closed');

describe('the reducer, whatever happens,', () => {
  it('keeps a state that survives JSON and is read back as it was', () => {
    fc.assert(
      fc.property(anyLife, (steps) =>
        live(steps, ({ last }) => {
          expect(parseHealthState(JSON.parse(JSON.stringify(last!.state)))).toEqual(last!.state);
        }),
      ),
      { numRuns: 60 },
    );
  });

  it('answers the same when it is asked again, and does not touch what it was given', () => {
    fc.assert(
      fc.property(anyLife, (steps) => {
        const subject = new Subject();
        live(steps, ({ state }) => {
          subject.state = state;
        });
        const given = JSON.stringify(subject.state);
        const seen = seenAt(T0 + 1e9, { held: 5, mode: 'pump' });
        const facts = [factAt(T0 + 1e9, { fail: 30, deliveries: ['a', 'b', 'c'] })];
        const once = reduceHealth(subject.state, seen, facts, { frozen: false });
        expect(reduceHealth(subject.state, seen, facts, { frozen: false })).toEqual(once);
        expect(JSON.stringify(subject.state)).toBe(given);
      }),
      { numRuns: 40 },
    );
  });

  it('tells each opening and closing of the breaker, and nothing else', () => {
    fc.assert(
      fc.property(anyLife, (steps) =>
        live(steps, ({ last }, before) => {
          let isGated = gated(before?.health);
          for (const { kind } of last!.edges) {
            if (kind === 'closed') {
              expect(isGated).toBe(true);
              isGated = false;
            }
            if (kind === 'opened' || kind === 'misconfigured') {
              expect(isGated).toBe(false);
              isGated = true;
            }
          }
          expect(gated(last!.state.health)).toBe(isGated);
        }),
      ),
      { numRuns: 100 },
    );
  });

  it('never leaves a gated endpoint without a time to probe, nor another one with', () => {
    fc.assert(
      fc.property(anyLife, (steps) =>
        live(steps, ({ last, seen }) => {
          const { gate, state } = last!;
          expect(gate.probeAtMs !== null).toBe(gated(state.health));
          if (gate.probeAtMs !== null) {
            expect(gate.mode).toBe('pump');
            const latest = Math.max(seen.nowMs + 3_600_000 * 1.2, gate.pauseUntilMs ?? 0);
            expect(gate.probeAtMs).toBeLessThanOrEqual(latest);
            if (seen.held > 0) expect(last!.wakeAtMs).not.toBeNull();
          }
        }),
      ),
      { numRuns: 100 },
    );
  });

  it('never allows a rate that is no positive number, and lets it out of the pump only by the pump', () => {
    fc.assert(
      fc.property(anyLife, (steps) =>
        live(steps, ({ last }) => {
          const { rate } = last!.gate;
          if (rate !== null) {
            expect(Number.isFinite(rate)).toBe(true);
            expect(rate).toBeGreaterThanOrEqual(0.2);
            expect(rate).toBeLessThanOrEqual(1_000);
          }
        }),
      ),
      { numRuns: 100 },
    );
  });

  it('never escalates less than before while the endpoint is not well', () => {
    fc.assert(
      fc.property(anyLife, (steps) =>
        live(steps, ({ last }, before) => {
          if (before === null || !gated(before.health) || !gated(last!.state.health)) return;
          const enabled = last!.state.k === 0 || last!.state.k >= before.k;
          expect(enabled).toBe(true);
        }),
      ),
      { numRuns: 100 },
    );
  });

  it('ends the same whether results come in one step or in several', () => {
    const batches = fc.array(fc.record({ fail: fc.nat(3), ok: fc.nat(3) }), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(batches, (all) => {
        const facts = all.map((fact, i) => ({ ...fact, atMs: T0 + 1_000 + i }));
        const lived = (steps: Partial<Fact>[][]): Subject => {
          const subject = new Subject({ oks: 1_000 });
          subject.step(0);
          for (const step of steps) subject.step(2, step, { lastSuccessAtMs: null });
          return subject;
        };
        const one = lived([facts]);
        const many = lived(facts.map((fact) => [fact]));
        // Seen step by step, a beginning may be bad enough by itself; what follows does not undo that.
        const beginnings = facts.map((_, i) => lived([facts.slice(0, i + 1)]).state?.health);
        expect(many.state?.health).toBe(beginnings.find((health) => health !== 'closed') ?? 'closed');
        const sum = (subject: Subject) => subject.state!.window.map(({ ok, fail }) => [ok, fail]);
        if (many.state?.health === 'closed') expect(sum(many)).toEqual(sum(one));
      }),
    );
  });
});

describe('random failures', () => {
  it('of 5 % trip nothing, at any traffic', () => {
    for (const perSecond of [0.05, 1, 20, 200]) {
      for (let seed = 1; seed <= 10; seed++) {
        let state = seed >>> 0;
        const random = () => {
          state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
          return state / 2 ** 32;
        };
        const subject = new Subject({ lastSuccessAtMs: T0, oks: 10, held: 0 });
        const every = Math.max(1, 1 / perSecond);
        for (let step = 1; step <= 400; step++) {
          const results = Math.max(1, perSecond);
          let fail = 0;
          for (let i = 0; i < results; i++) if (random() < 0.05) fail++;
          const ok = results - fail;
          // What is plain success is known by the counter alone.
          if (fail === 0) {
            const nowMs = T0 + step * every * 1000;
            subject.seen = { ...subject.seen, nowMs, oks: subject.seen.oks + ok, lastSuccessAtMs: nowMs };
          } else
            subject.step(step * every, [{ ok, fail, deliveries: [`d${step}`] }], { sendRate: perSecond });
        }
        expect(subject.edges).toEqual([]);
      }
    }
  });
});
