/** What processes use, from /proc (Linux): CPU of all their threads, resident memory. */
import { readdirSync, readFileSync } from 'node:fs';

const TICK_MS = 10; // USER_HZ is 100 on every Linux that Node runs on
const PAGE = 4_096;

interface Stat {
  parent: number;
  /** CPU of the process itself, and of its children that have ended and been waited for, ms. */
  own: number;
  ended: number;
  rssBytes: number;
}

function stat(pid: number): Stat | null {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ').map(Number);
    return {
      parent: fields[1]!,
      own: (fields[11]! + fields[12]!) * TICK_MS,
      ended: (fields[13]! + fields[14]!) * TICK_MS,
      rssBytes: fields[21]! * PAGE,
    };
  } catch {
    return null; // it has ended
  }
}

/** CPU milliseconds of one process; null when it is gone. */
export const cpuMs = (pid: number): number | null => stat(pid)?.own ?? null;

export const rssBytes = (pid: number): number => stat(pid)?.rssBytes ?? 0;

/** CPU milliseconds of a postmaster and all its backends, those that have ended included. */
export function postgresCpuMs(postmaster: number): number {
  const main = stat(postmaster);
  if (main === null) return 0;
  let total = main.own + main.ended;
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const child = stat(Number(name));
    if (child?.parent === postmaster) total += child.own;
  }
  return total;
}

/** Follows processes over their lives: CPU also of those that were killed, and the most memory they had together. */
export function watchProcesses(pids: () => readonly number[], everyMs = 200) {
  const last = new Map<number, number>();
  let mostRss = 0;
  const look = (): void => {
    let rss = 0;
    for (const pid of pids()) {
      const now = stat(pid);
      if (now === null) continue;
      last.set(pid, now.own);
      rss += now.rssBytes;
    }
    mostRss = Math.max(mostRss, rss);
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return {
    cpuMs(): number {
      look();
      return [...last.values()].reduce((sum, ms) => sum + ms, 0);
    },
    mostRssBytes: (): number => mostRss,
    rssBytes: (): number => pids().reduce((sum, pid) => sum + rssBytes(pid), 0),
    stop: (): void => clearInterval(timer),
  };
}
