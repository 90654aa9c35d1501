/**
 * Starts a server as a child that can't outlive us: a tiny shell watches a pipe whose other end only this process
 * holds, and interrupts the child when the pipe closes, be it by stop(), by a crash, or by kill -9.
 * Called by postgres.ts and temporal.ts. POSIX only, as the servers' own start-up is.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, statSync } from 'node:fs';
import type { Socket } from 'node:net';

export interface ChildOptions {
  name: string;
  command: string;
  args: string[];
  /** Everything the child prints. Its end is quoted when the child fails. */
  logFile: string;
  cwd?: string;
  user?: { uid: number; gid: number } | null;
  env?: Record<string, string>;
}

export interface Child {
  pid: number;
  /** Settles when the child has ended, with the reason in words. Never rejects. */
  exited: Promise<string>;
  /** Interrupts the child, waits, and kills it after `graceMs`. Harmless when it has ended already. */
  stop(graceMs?: number): Promise<void>;
  /** The last lines of its log, for error messages. */
  tail(lines?: number): string;
}

// The watcher is detached from the shell (so that the child, which takes the shell's place, has no stranger among
// its own children) and holds the pipe as descriptor 3.
const WATCH =
  'umask 077; ( ( read -r _ <&3; kill -s INT $$ 2>/dev/null ) & ) </dev/null; exec 3<&-; exec "$@"';

export async function startChild(options: ChildOptions): Promise<Child> {
  const logFd = openSync(options.logFile, isLarge(options.logFile) ? 'w' : 'a', 0o600);
  const child = spawn('/bin/sh', ['-c', WATCH, options.name, options.command, ...options.args], {
    detached: true, // its own group: Ctrl-C in a terminal reaches us only, and we stop the children in order
    stdio: ['ignore', logFd, logFd, 'pipe'],
    env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.user ?? {}),
  });
  closeSync(logFd);
  const pipe = child.stdio[3] as Socket;
  pipe.on('error', () => {}); // the child may be gone before the pipe is
  pipe.unref();
  child.unref();
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(`could not be started: ${error.message}`));
    child.once('exit', (code, signal) => {
      pipe.destroy();
      resolve(signal ? `was ended by ${signal}` : `ended with code ${code}`);
    });
  });
  if (child.pid === undefined) throw new Error(`${options.name} ${await exited}`);
  return {
    pid: child.pid,
    exited,
    stop: (graceMs = 15_000) => stopChild(child, exited, graceMs),
    tail: (lines = 15) => tail(options.logFile, lines),
  };
}

async function stopChild(child: ChildProcess, exited: Promise<string>, graceMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGINT');
  const timer = setTimeout(() => {
    try {
      process.kill(-(child.pid as number), 'SIGKILL');
    } catch {
      // it ended in the meantime
    }
  }, graceMs);
  await exited;
  clearTimeout(timer);
}

/** Logs start anew above 10 MB: embedded servers are for trying things out, not for auditing. */
function isLarge(file: string): boolean {
  return (statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 10_000_000;
}

function tail(file: string, lines: number): string {
  try {
    return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-lines).join('\n');
  } catch {
    return '';
  }
}
