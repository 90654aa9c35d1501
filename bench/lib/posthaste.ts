/** `node dist/main.js <role>` as processes of their own, with the flags of `npm start` and every default on. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { MASTER_KEYS_TEXT } from '../../test/support/seed.ts';
import { sleep } from './clock.ts';
import { freePort } from './servers.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const ADMIN_KEY = 'phk_bench_0123456789abcdef0123456789abcdef';
export const NODE_FLAGS = ['--max-semi-space-size=32'];

export interface Posthaste {
  pid: number;
  role: string;
  /** Of the API; null without it. */
  port: number | null;
  /** Log lines of level warn and above, the first hundred. */
  complaints: string[];
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>;
  /** SIGTERM; resolves when it is gone. */
  stop(): Promise<void>;
}

export interface PosthasteOptions {
  role: 'all' | 'api' | 'relay' | 'worker';
  databaseUrl: string;
  temporalAddress: string;
  env?: Record<string, string>;
  /** Folder for a CPU profile, written when the process stops. */
  profileTo?: string;
}

/** Resolves when the process says that it is ready. */
export async function startPosthaste(options: PosthasteOptions): Promise<Posthaste> {
  const serves = options.role === 'all' || options.role === 'api';
  const port = serves ? await freePort() : null;
  const flags = [...NODE_FLAGS];
  if (options.profileTo !== undefined) flags.push('--cpu-prof', `--cpu-prof-dir=${options.profileTo}`);
  const child = spawn(process.execPath, [...flags, 'dist/main.js', options.role], {
    cwd: ROOT,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      ...(port === null ? {} : { PORT: String(port) }),
      DATABASE_URL: options.databaseUrl,
      TEMPORAL_ADDRESS: options.temporalAddress,
      POSTHASTE_ADMIN_KEY: ADMIN_KEY,
      POSTHASTE_MASTER_KEYS: MASTER_KEYS_TEXT,
      EGRESS_ALLOW: '127.0.0.0/8:*',
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const complaints: string[] = [];
  const said: string[] = [];
  let ready: () => void = () => {};
  const isReady = new Promise<void>((resolve) => {
    ready = resolve;
  });
  const gone = new Promise<void>((resolve) => child.once('close', () => resolve()));
  for (const stream of [child.stdout, child.stderr]) {
    let rest = '';
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        if (said.length < 50) said.push(line);
        if (/"msg":"ready"/.test(line)) ready();
        if (/"level":("(warn|error|fatal)"|[456]0)/.test(line) && complaints.length < 100)
          complaints.push(line);
      }
    });
  }
  const outcome = await Promise.race([
    isReady.then(() => 'ready'),
    gone.then(() => 'gone'),
    sleep(60_000).then(() => 'late'),
  ]);
  if (outcome !== 'ready') {
    child.kill('SIGKILL');
    throw new Error(`posthaste ${options.role} is ${outcome} before it was ready:\n${said.join('\n')}`);
  }
  return {
    pid: child.pid as number,
    role: options.role,
    port,
    complaints,
    async kill() {
      child.kill('SIGKILL');
      await gone;
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
      await gone;
      clearTimeout(timer);
    },
  };
}
