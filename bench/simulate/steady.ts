/** Receivers that never change: one that is dead, and one that takes half of what it is offered. */
import type { ReceiverPlan } from './receiver.ts';
import { World } from './world.ts';

const CAP = 10;
const TIMEOUT_MS = 15_000;
const MINUTE = 60_000;

export interface Dead {
  readonly firstMinute: number; // requests
  readonly firstHour: number;
}

/** Dies at 100 events/s, after `healthyMs` of health, by refusing or by hanging. */
export function simulateDead(downBy: ReceiverPlan['downBy'], healthyMs: number, seed: number): Dead {
  const receiver: ReceiverPlan = {
    kind: 'shed',
    capacity: 1_000,
    refuses: 503,
    retryAfter: null,
    down: { fromMs: healthyMs, toMs: Number.POSITIVE_INFINITY },
    downBy,
  };
  let [firstMinute, firstHour] = [0, 0];
  const world = new World(
    { policy: 'posthaste', offered: 100, receiver, cap: CAP, seed, timeoutMs: TIMEOUT_MS },
    {
      sent(now) {
        if (now < healthyMs) return;
        firstHour++;
        if (now < healthyMs + MINUTE) firstMinute++;
      },
      delivered() {},
      edge() {},
      cooldown() {},
    },
  );
  while (world.nowMs < healthyMs + 60 * MINUTE) world.tick();
  return { firstMinute, firstHour };
}

export type Limit = { kind: 'bucket' | 'window'; retryAfter: ReceiverPlan['retryAfter'] };

export interface Limited {
  readonly limit: Limit;
  readonly taken: number; // 2xx as a share of the limit, minutes 10 to 30
  readonly refused: number; // 429 as a share of all requests in that time
  readonly trips: number;
  readonly perSecond: readonly number[]; // requests
}

/** Offered 100/s, takes 50/s and answers the rest with 429, for half an hour. */
export function simulateLimited(limit: Limit, seed: number): Limited {
  const capacity = 50;
  const receiver: ReceiverPlan = {
    ...limit,
    capacity,
    refuses: 429,
    down: { fromMs: Number.POSITIVE_INFINITY, toMs: Number.POSITIVE_INFINITY },
    downBy: 'refusing',
  };
  const [fromMs, toMs] = [10 * MINUTE, 30 * MINUTE];
  let [sent, taken, trips] = [0, 0, 0];
  const perSecond = new Array<number>(toMs / 1000).fill(0);
  const world = new World(
    { policy: 'posthaste', offered: 2 * capacity, receiver, cap: 50, seed, timeoutMs: TIMEOUT_MS },
    {
      sent(now) {
        perSecond[Math.floor(now / 1000)]! += 1;
        if (now >= fromMs) sent++;
      },
      delivered(_, now) {
        if (now >= fromMs) taken++;
      },
      edge(kind) {
        if (kind === 'opened') trips++;
      },
      cooldown() {},
    },
  );
  while (world.nowMs < toMs) world.tick();
  const seconds = (toMs - fromMs) / 1000;
  return { limit, taken: taken / (capacity * seconds), refused: 1 - taken / sent, trips, perSecond };
}

export const LIMITS: readonly Limit[] = [
  { kind: 'bucket', retryAfter: null },
  { kind: 'bucket', retryAfter: 1 },
  { kind: 'bucket', retryAfter: 5 },
  { kind: 'window', retryAfter: null },
  { kind: 'window', retryAfter: 'rest' },
];
