/**
 * Starts what the tests share: one PostgreSQL, one Temporal dev server, one build; each when a test file first asks
 * for it, so that a run of pure tests starts nothing. Test files run in processes of their own and ask over a
 * loopback port, whose address vitest hands them (`inject('servers')`): see postgres.ts, temporal.ts, process.ts.
 * TEST_DATABASE_URL (a superuser's) and TEST_TEMPORAL_ADDRESS take the place of the embedded servers.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { startPostgres } from '../../src/embedded/postgres.ts';
import { startTemporal } from '../../src/embedded/temporal.ts';
import { ensureTemporalCli } from '../../src/embedded/temporal-cli.ts';
import { makeTemplate } from './template.ts';

declare module 'vitest' {
  interface ProvidedContext {
    servers: string;
  }
}

/** What `GET /<name>` answers, as JSON. */
export interface Shared {
  /** A superuser's URL, and the migrated database to clone. */
  postgres: { adminUrl: string; template: string };
  temporal: { address: string };
  dist: { built: true };
}

/** Run in reverse order when the run ends. */
const cleanUps: (() => Promise<unknown>)[] = [];

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'posthaste-test-'));
  cleanUps.push(() => rm(path, { recursive: true, force: true }));
  return path;
}

const starters: { [K in keyof Shared]: () => Promise<Shared[K]> } = {
  async postgres() {
    let adminUrl = process.env.TEST_DATABASE_URL;
    if (adminUrl === undefined) {
      const server = await startPostgres({
        directory: await folder(),
        notice: () => {},
        port: 0,
        durable: false,
      });
      cleanUps.push(async () => {
        await server.stop();
        await rm(server.directory, { recursive: true, force: true });
      });
      adminUrl = server.url;
    }
    const { template, drop } = await makeTemplate(adminUrl);
    cleanUps.push(drop);
    return { adminUrl, template };
  },
  async temporal() {
    if (process.env.TEST_TEMPORAL_ADDRESS) return { address: process.env.TEST_TEMPORAL_ADDRESS };
    const cli = await ensureTemporalCli(console.error);
    const server = await startTemporal({
      cli,
      directory: await folder(),
      notice: () => {},
      persistent: false,
      port: 0,
      uiPort: 0,
    });
    cleanUps.push(() => server.stop());
    return { address: server.address };
  },
  async dist() {
    await promisify(execFile)('node', ['scripts/setup.mjs']);
    return { built: true };
  },
};

export async function setup(project: TestProject): Promise<void> {
  const started = new Map<string, Promise<unknown>>();
  const server = createServer((request, response) => {
    const name = (request.url ?? '').slice(1) as keyof Shared;
    const value = started.get(name) ?? starters[name]();
    started.set(name, value);
    value.then(
      (answer) => response.end(JSON.stringify(answer)),
      (error: Error & { stderr?: string }) => {
        response.statusCode = 500;
        response.end(`${error.message}\n${error.stderr ?? ''}`);
      },
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUps.unshift(async () => server.close());
  project.provide('servers', `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

export async function teardown(): Promise<void> {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
}
