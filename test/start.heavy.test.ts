/** `npm start` as a newcomer meets it: everything comes up, one event arrives, Ctrl-C leaves nothing behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, describe, expect, it } from 'vitest';
import { commandLine } from '../src/embedded/orphans.ts';
import { freePort, untilGone } from './support/process.ts';
import { shared } from './support/shared.ts';

const folder = mkdtempSync(join(tmpdir(), 'posthaste-start-'));
let npm: ChildProcess | undefined;
afterAll(() => {
  if (npm?.pid !== undefined && npm.exitCode === null && npm.signalCode === null)
    process.kill(-npm.pid, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

interface Run {
  lines: string[];
  readyMs: number;
  /** Sends `signal` to npm alone, or, as a terminal does on Ctrl-C, to everything it started. */
  stop(signal: 'SIGINT' | 'SIGTERM', target: 'npm' | 'group'): Promise<string>;
}

async function npmStart(): Promise<Run> {
  const began = performance.now();
  const env = { ...process.env, POSTHASTE_DATA_DIR: folder, PORT: String(await freePort()) };
  const child = spawn('npm', ['start'], { cwd: join(import.meta.dirname, '..'), env, detached: true });
  npm = child;
  const ended = once(child, 'close');
  const lines: string[] = [];
  const ready = Promise.withResolvers<void>();
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      lines.push(line);
      if (line.startsWith('Ready')) ready.resolve();
    });
  }
  await Promise.race([
    ready.promise,
    ended.then(() => Promise.reject(new Error(`npm start ended:\n${lines.join('\n')}`))),
  ]);
  const readyMs = performance.now() - began;
  return {
    lines,
    readyMs,
    async stop(signal, target) {
      process.kill(target === 'npm' ? (child.pid as number) : -(child.pid as number), signal);
      await ended;
      return lines.join('\n');
    },
  };
}

const key = () => readFileSync(join(folder, 'admin-key'), 'utf8').trim();

function serverPids(): number[] {
  return ['postgres/postmaster.pid', 'temporal.pid']
    .map((file) => join(folder, file))
    .filter((file) => existsSync(file))
    .map((file) => Number(readFileSync(file, 'utf8').split('\n')[0]));
}

describe('npm start', () => {
  it('brings everything up, shows an event that arrived, and Ctrl-C leaves no process', async () => {
    await shared('dist');
    const run = await npmStart();
    const pids = serverPids();
    expect(pids).toHaveLength(2);
    expect(pids.map(commandLine)).not.toContain('');
    const text = run.lines.join('\n');
    expect(text).toContain(key());
    expect(text).toMatch(/signature verified/);
    expect(text).toMatch(/Temporal UI\s+http:\/\/127\.0\.0\.1:\d+/);
    await run.stop('SIGINT', 'group');
    await Promise.all(pids.map((pid) => untilGone(pid)));
    expect(run.readyMs).toBeLessThan(60_000);
  });

  it('keeps its key and data for the next start, and a SIGTERM for npm stops it all too', async () => {
    const before = key();
    const run = await npmStart();
    const pids = serverPids();
    expect(run.lines.join('\n')).toContain(before);
    await run.stop('SIGTERM', 'npm');
    await Promise.all(pids.map((pid) => untilGone(pid)));
    expect(run.readyMs).toBeLessThan(30_000); // 3 s on a quiet machine
  });
});
