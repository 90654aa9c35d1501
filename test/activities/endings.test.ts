import { expect, test, vi } from 'vitest';
import { createEndings } from '../../src/activities/endings.ts';

test('groups that waited for the same receivers end one after the other, many at once, and all when it stops', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  try {
    const endings = createEndings();
    const over = new AbortController();
    let ended = 0;
    for (let i = 0; i < 20; i++) void endings.turn(over.signal).then(() => ended++);
    await vi.advanceTimersByTimeAsync(10);
    expect(ended).toBe(1);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(ended).toBe(10);
    for (let i = 0; i < 100; i++) void endings.turn(over.signal).then(() => ended++);
    await vi.advanceTimersByTimeAsync(0);
    expect(ended).toBe(90); // 30 wait
    over.abort();
    await vi.advanceTimersByTimeAsync(0);
    expect(ended).toBe(120);
  } finally {
    vi.useRealTimers();
  }
});
