/**
 * Finds and ends a server that a crashed run of ours left behind. The watcher of child.ts ends it within moments
 * anyway; this waits for that, and helps when it did not. Called by postgres.ts and temporal.ts before they start.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** The command line of a process, or '' when there is none: pids are reused, so a pid alone proves nothing. */
export function commandLine(pid: number): string {
  try {
    if (existsSync('/proc/self')) return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
    return execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' });
  } catch {
    return '';
  }
}

/**
 * Ends process `pid` if its command line holds `mark` (the path of the data it serves): politely, then by force.
 * Returns false when no such process was running.
 */
export async function endOrphan(pid: number, mark: string): Promise<boolean> {
  const running = () => isAlive(pid) && commandLine(pid).includes(mark);
  if (!running()) return false;
  for (const signal of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EPERM') {
        throw new Error(`Process ${pid} of another user still serves ${mark}. Stop it, then start again.`);
      }
    }
    // Not our child, so nothing tells us when it ends.
    for (let waited = 0; waited < 8_000 && running(); waited += 50) await delay(50);
    if (!running()) return true;
  }
  throw new Error(`Process ${pid} still serves ${mark} and can't be ended. Stop it, then start again.`);
}
