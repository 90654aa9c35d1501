import { expect, test, vi } from 'vitest';
import { createEndings } from '../../src/activities/endings.ts';

test('groups that waited for the same receivers end one after the other, within twenty seconds, or when all stops', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  try {
    const endings = createEndings();
    const over = new AbortController();
    let ended = 0;
    for (let i = 0; i < 100; i++) void endings.turn(over.signal).then(() => ended++);
    await vi.advanceTimersByTimeAsync(10);
    expect(ended).toBe(1);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(ended).toBeGreaterThanOrEqual(29);
    expect(ended).toBeLessThanOrEqual(32);
    await vi.advanceTimersByTimeAsync(10_100);
    expect(ended).toBe(100);
    for (let i = 0; i < 10; i++) void endings.turn(over.signal).then(() => ended++);
    over.abort();
    await vi.advanceTimersByTimeAsync(0);
    expect(ended).toBe(110);
  } finally {
    vi.useRealTimers();
  }
});
