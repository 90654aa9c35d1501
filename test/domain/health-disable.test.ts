import { describe, expect, it } from 'vitest';
import type { Seen } from '../../src/domain/health.ts';
import { Subject, T0 } from '../support/health.ts';

const HOUR = 3_600;

/** Fails once an hour until hour `until`; answers when each edge came, in hours. */
function failHourly(
  subject: Subject,
  from: number,
  until: number,
  change: Partial<Seen> = {},
): [string, number][] {
  const edges: [string, number][] = [];
  for (let hour = from; hour <= until; hour++) {
    const step = subject.step(hour * HOUR, [{ fail: 1, deliveries: ['a'] }], change);
    edges.push(...step.edges.map((edge): [string, number] => [edge.kind, hour]));
    if (step.disable !== null) edges.push([step.disable, hour]);
  }
  return edges;
}

describe('the disable clock', () => {
  it('gives notice after 24 and 72 hours without a success, and disables after 5 days', () => {
    const edges = failHourly(new Subject(), 0, 120).filter(([kind]) => /notice|disabled/.test(kind));
    expect(edges).toEqual([
      ['notice_24h', 24],
      ['notice_72h', 72],
      ['disabled', 120],
    ]);
  });

  it('answers when it is due, so that it needs no further result', () => {
    const subject = new Subject({ held: 0 });
    failHourly(subject, 0, 10);
    expect(subject.last?.wakeAtMs).toBe(T0 + 24 * HOUR * 1000);
    expect(subject.step(24 * HOUR).edges.map((edge) => edge.kind)).toEqual(['notice_24h']);
    expect(subject.last?.wakeAtMs).toBe(T0 + 72 * HOUR * 1000);
    subject.step(72 * HOUR);
    expect(subject.step(120 * HOUR)).toMatchObject({ disable: 'failing', wakeAtMs: null });
  });

  it('waits for ten attempts, and leaves a day between notices when those are rare', () => {
    const subject = new Subject({ held: 0 });
    const edges: [string, number][] = [];
    for (let day = 0; day < 20; day++) {
      const step = subject.step(day * 24 * HOUR, [{ fail: 1, deliveries: ['a'] }]);
      edges.push(...step.edges.map((edge): [string, number] => [edge.kind, day]));
    }
    expect(edges.slice(0, 3)).toEqual([
      ['notice_24h', 9],
      ['notice_72h', 10],
      ['disabled', 11],
    ]);
  });

  it('is ended by a success, which is told when a notice went out before', () => {
    const subject = new Subject({ held: 0 });
    for (let hour = 0; hour <= 30; hour += 3) subject.step(hour * HOUR, [{ fail: 1, deliveries: ['a'] }]);
    expect(subject.edges).toEqual(['notice_24h']);
    expect(subject.step(31 * HOUR, [{ ok: 1 }]).edges.map((edge) => edge.kind)).toEqual(['recovered']);
    expect(subject.state?.clock).toMatchObject({ sinceMs: null, attempts: 0, noticed: 0 });
  });

  it('counts refusals and 429, but nothing that is our fault', () => {
    const subject = new Subject({ held: 0 });
    subject.step(0, [{ config: 5, throttled: 4, neutral: 9, lost: 9 }]);
    expect(subject.state?.clock.attempts).toBe(9);
  });

  it('stands still while an operator has paused the endpoint', () => {
    const subject = new Subject({ held: 0 });
    failHourly(subject, 0, 20);
    subject.step(20 * HOUR, [{ edit: 'pause' }], { operator: 'paused' });
    expect(subject.step(300 * HOUR).edges).toEqual([]);
    subject.step(300 * HOUR, [{ edit: 'resume' }], { operator: 'active' });
    expect(subject.last?.wakeAtMs).toBe(T0 + 304 * HOUR * 1000);
  });

  it('is started anew by enable', () => {
    const subject = new Subject();
    failHourly(subject, 0, 119);
    subject.step(119.5 * HOUR, [{ edit: 'enable' }]);
    const edges = failHourly(subject, 120, 143);
    expect(edges.filter(([kind]) => kind.startsWith('notice') || kind === 'disabled')).toEqual([]);
  });
});

describe('410', () => {
  it('disables at once', () => {
    const step = new Subject().step(0, [{ gone: true, lastStatus: 410 }]);
    expect(step.disable).toBe('gone');
    expect(step.edges.map((edge) => edge.kind)).toEqual(['disabled']);
    expect(step.wakeAtMs).toBeNull();
  });

  it('does nothing when the request was made before an edit, or the endpoint is disabled already', () => {
    const subject = new Subject();
    subject.step(0, [{ edit: 'edit' }]);
    expect(subject.step(5, [{ gone: true, startedMs: T0 - 1_000 }]).disable).toBeNull();
    expect(new Subject({ operator: 'disabled' }).step(0, [{ gone: true }]).disable).toBeNull();
  });
});

describe('a misconfigured endpoint', () => {
  const refuse = (subject: Subject) => {
    for (let i = 0; i <= 60; i++)
      subject.step(i * 10, [{ config: 1, lastStatus: 401, lastClass: 'http_4xx' }]);
    return subject;
  };

  it('is one that refused 50 times in a row over 10 minutes: held, with a sparse probe', () => {
    const subject = refuse(new Subject());
    expect(subject.edges).toEqual(['misconfigured']);
    expect(subject.state?.health).toBe('misconfigured');
    expect(subject.last?.gate).toMatchObject({ mode: 'pump', rate: null });
    const waits = [subject.probeAt - 600];
    for (let i = 0; i < 5; i++) {
      const now = subject.probeAt + 0.2;
      subject.probe({ config: 1 });
      waits.push(subject.probeAt - now);
    }
    waits.forEach((wait, i) => {
      const least = Math.min(60, 10 * 2 ** i) * 60;
      expect(wait).toBeGreaterThanOrEqual(least);
      expect(wait).toBeLessThanOrEqual(least * 1.2);
    });
  });

  it('is not one that refused 50 times in a minute, or took one in between', () => {
    const quick = new Subject();
    quick.step(0, [{ config: 500 }]);
    quick.step(500, [{ config: 500 }]);
    expect(quick.state?.health).toBe('closed');
    const mixed = new Subject();
    for (let i = 0; i < 200; i++) mixed.step(i * 10, [i % 40 === 0 ? { ok: 1 } : { config: 1 }]);
    expect(mixed.state?.health).toBe('closed');
  });

  it('recovers by one success', () => {
    const subject = refuse(new Subject());
    expect(subject.probe({ ok: 1 }).state.health).toBe('recovering');
    expect(subject.edges).toEqual(['misconfigured', 'closed']);
  });

  it('is probed at once after an edit, and is misconfigured again when that did not help', () => {
    const subject = refuse(new Subject());
    const step = subject.step(700, [{ edit: 'edit' }]);
    expect(step.gate.probeAtMs).toBe(T0 + 700_000);
    subject.probe({ config: 1 });
    expect(subject.state?.health).toBe('misconfigured');
    expect(subject.probeAt).toBeGreaterThan(700 + 600);
  });
});
