/**
 * Lets one process at a time use a data folder. Called by embedded/index.ts. The lock names a process and when it
 * began, so that the lock of a crashed run, or of a pid that now belongs to somebody else, does not count.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandLine, isAlive } from './orphans.ts';

/** Takes the lock or throws; returns what releases it. */
export function lockDataFolder(dataDir: string): () => void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const file = join(dataDir, 'lock');
  const mine = JSON.stringify({ pid: process.pid, began: beganOf(process.pid) });
  for (let tries = 0; tries < 2; tries++) {
    try {
      writeFileSync(file, mine, { flag: 'wx', mode: 0o600 });
      return () => rmSync(file, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      const holder = readHolder(file);
      if (holder !== null && isAlive(holder.pid) && beganOf(holder.pid) === holder.began) {
        throw new Error(
          `Posthaste already runs on ${dataDir} (process ${holder.pid}). Stop it, or set POSTHASTE_DATA_DIR to another folder.`,
        );
      }
      rmSync(file, { force: true });
    }
  }
  throw new Error(`Another Posthaste just started on ${dataDir}.`);
}

function readHolder(file: string): { pid: number; began: string } | null {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return null;
  }
}

/** What tells this process from a later one with the same pid: its start time, or its command line without /proc. */
function beganOf(pid: number): string {
  try {
    // Field 22 of stat, counted from behind the command name, which may hold spaces.
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[19] ?? '';
  } catch {
    return commandLine(pid).trim();
  }
}
