/**
 * Runs `node dist/main.js <role>` as a process of its own, as in production, so that tests can kill it. The build
 * is brought up to date first; whatever a test file leaves running is ended after it, by its id.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { commandLine } from '../../src/embedded/orphans.ts';
import { cleanUpLater } from './clean-up.ts';
import { shared } from './shared.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface RoleProcess {
  pid: number;
  /** Lines of stdout and stderr so far, in the order they came. */
  lines: string[];
  /** Resolves with the first line, past or to come, that matches. Fails when the process ends before. */
  waitForLine(matches: RegExp | ((line: string) => boolean), timeoutMs?: number): Promise<string>;
  /** Resolves when `GET url` answers 2xx; for a `/readyz` that the process serves. */
  waitForReady(url: string, timeoutMs?: number): Promise<void>;
  /** SIGKILL at once; resolves when the process is gone. */
  kill(): Promise<void>;
  /** SIGTERM; resolves with the exit code when the process is gone. */
  terminate(timeoutMs?: number): Promise<number | null>;
  exited: Promise<{ code: number | null; signal: string | null }>;
}

const running = new Set<ChildProcess>();
let cleansUp = false;

/** @param args the role and its flags, such as `['all']`. @param env added to a bare environment. */
export async function startRole(args: string[], env: Record<string, string>): Promise<RoleProcess> {
  await shared('dist');
  if (!cleansUp) {
    cleansUp = true;
    cleanUpLater(endAll);
  }
  const child = spawn(process.execPath, ['dist/main.js', ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const lines: string[] = [];
  const listeners = new Set<() => void>();
  const exited = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    child.once('close', (code, signal) => {
      running.delete(child);
      resolve({ code, signal });
      for (const listener of listeners) listener();
    });
  });
  for (const stream of [child.stdout, child.stderr]) {
    let rest = '';
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      const parts = (rest + chunk).split('\n');
      rest = parts.pop() as string;
      lines.push(...parts);
      for (const listener of listeners) listener();
    });
  }
  const said = () => `It said:\n${lines.slice(-30).join('\n')}`;
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;

  function waitForLine(matches: RegExp | ((line: string) => boolean), timeoutMs = 30_000): Promise<string> {
    const test = matches instanceof RegExp ? (line: string) => matches.test(line) : matches;
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const settle = (done: () => void) => {
      clearTimeout(timer);
      listeners.delete(check);
      done();
    };
    const check = () => {
      const line = lines.find(test);
      if (line !== undefined) settle(() => resolve(line));
      else if (hasEnded()) {
        settle(() => reject(new Error(`posthaste ${args.join(' ')} ended before ${matches}. ${said()}`)));
      }
    };
    const timer = setTimeout(
      () => settle(() => reject(new Error(`No line ${matches} within ${timeoutMs} ms. ${said()}`))),
      timeoutMs,
    );
    listeners.add(check);
    check();
    return promise;
  }

  return {
    pid: child.pid as number,
    lines,
    exited,
    waitForLine,
    waitForReady: (url, timeoutMs = 30_000) => waitForReady(url, timeoutMs, hasEnded, said),
    async kill() {
      child.kill('SIGKILL');
      await exited;
    },
    async terminate(timeoutMs = 30_000) {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
      const { code } = await exited;
      clearTimeout(timer);
      return code;
    },
  };
}

/** Asks again and again, because a process that is starting can't tell us when it listens. */
async function waitForReady(
  url: string,
  timeoutMs: number,
  hasEnded: () => boolean,
  said: () => string,
): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; ; ) {
    const ok = await fetch(url, { signal: AbortSignal.timeout(2_000) }).then(
      (response) => response.ok,
      () => false,
    );
    if (ok) return;
    if (hasEnded()) throw new Error(`The process ended before ${url} was ready. ${said()}`);
    if (Date.now() > deadline) throw new Error(`${url} was not ready within ${timeoutMs} ms. ${said()}`);
    await delay(50);
  }
}

async function endAll(): Promise<void> {
  await Promise.all(
    [...running].map((child) => {
      const gone = new Promise((resolve) => child.once('close', resolve));
      child.kill('SIGKILL');
      return gone;
    }),
  );
}

/** Resolves when no process has this id. It need not be a child of ours, so nothing but asking tells. */
export async function untilGone(pid: number, timeoutMs = 20_000): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; commandLine(pid) !== ''; await delay(20)) {
    if (Date.now() > deadline) throw new Error(`process ${pid} is still there: ${commandLine(pid)}`);
  }
}

/** A loopback port that was free a moment ago, for a role's PORT. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject).listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
