/** The servers that `npm start` brings: they survive what users do to them, and leave nothing behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { type Embedded, ensureSecrets, startEmbedded } from '../src/embedded/index.ts';
import { choosePort } from '../src/embedded/ports.ts';
import { freePort, untilGone } from './support/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'posthaste-embedded-'));
afterAll(async () => {
  for (const file of ['postgres/postmaster.pid', 'temporal.pid'])
    if (existsSync(join(folder, file))) await untilGone(pidOf(file));
  rmSync(folder, { recursive: true, force: true });
});
const quiet = { info() {} };
const ports = { postgres: await freePort(), temporal: await freePort(), temporalUi: await freePort() };

let embedded: Embedded | undefined;
let child: ChildProcess | undefined;
afterEach(async () => {
  await embedded?.stop();
  embedded = undefined;
  if (child !== undefined) await killed(child);
  child = undefined;
});

async function killed(process: ChildProcess): Promise<void> {
  const gone = once(process, 'exit');
  if (process.exitCode === null && process.signalCode === null && process.kill('SIGKILL')) await gone;
}

async function start(): Promise<Embedded> {
  embedded = await startEmbedded({ dataDir: folder, log: quiet, ports });
  return embedded;
}

/** Starts the servers from a process of its own, which says so and then waits to be killed. */
async function startInChild(): Promise<ChildProcess> {
  const module = join(import.meta.dirname, '../src/embedded/index.ts');
  const script = `
    const { startEmbedded } = await import(${JSON.stringify(module)});
    const options = { dataDir: ${JSON.stringify(folder)}, log: { info() {} }, ports: ${JSON.stringify(ports)} };
    const { databaseUrl } = await startEmbedded(options);
    console.log(databaseUrl);
    setInterval(() => {}, 1000);`;
  child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  return child;
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(sql).finally(() => client.end());
  return rows;
}

const pidOf = (file: string) => Number(readFileSync(join(folder, file), 'utf8').split('\n')[0]);

describe('the embedded servers', () => {
  it('keep their data between runs, on loopback, with a password', async () => {
    const first = await start();
    expect(new URL(first.databaseUrl).hostname).toBe('127.0.0.1');
    expect(new URL(first.databaseUrl).password).toMatch(/^[\w-]{32}$/);
    await query(first.databaseUrl, 'create table kept (n int)');
    await first.stop();
    const second = await start();
    expect(second.databaseUrl).toBe(first.databaseUrl);
    expect(await query(second.databaseUrl, 'select * from kept')).toEqual([]);
  }, 60_000);

  it('end by themselves when their starter is killed, and start again on the same data', async () => {
    const starter = await startInChild();
    const pids = [pidOf('postgres/postmaster.pid'), pidOf('temporal.pid')];
    await killed(starter);
    await Promise.all(pids.map((pid) => untilGone(pid)));
    await start();
  }, 60_000);

  it('start at once after a kill, before what was left behind has ended', async () => {
    const starter = await startInChild();
    await killed(starter);
    const { databaseUrl } = await start();
    expect(await query(databaseUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
  }, 60_000);

  it('start although a stale lock file names a process that is somebody else', async () => {
    await (await start()).stop();
    writeFileSync(join(folder, 'postgres/postmaster.pid'), `${process.pid}\n`);
    writeFileSync(join(folder, 'temporal.pid'), String(process.pid));
    writeFileSync(join(folder, 'lock'), JSON.stringify({ pid: process.pid, began: 'long ago' }));
    await start();
  }, 60_000);

  it('refuse a second run on the same folder and name the first', async () => {
    const { pid } = await startInChild();
    await expect(start()).rejects.toThrow(
      new RegExp(`already runs on .*\\(process ${pid}\\).*POSTHASTE_DATA_DIR`),
    );
  }, 60_000);

  it('leave alone what the environment already names', async () => {
    const options = { databaseUrl: 'postgres://db/x', temporalAddress: 'temporal:7233' };
    embedded = await startEmbedded({ dataDir: folder, log: quiet, ...options });
    expect(embedded).toMatchObject({ ...options, temporalUiUrl: null });
  });
});

describe('ensureSecrets', () => {
  it('makes keys once, for their owner’s eyes only', () => {
    const first = ensureSecrets(folder);
    expect(first.adminKey).toMatch(/^phk_[\w-]{43}$/);
    chmodSync(join(folder, 'admin-key'), 0o644);
    expect(ensureSecrets(folder)).toEqual(first);
    for (const file of ['admin-key', 'master-keys'])
      expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
  });
});

describe('choosePort', () => {
  it('takes the usual port when it is free, and another after saying so when it is not', async () => {
    const usual = await freePort();
    const told: number[] = [];
    expect(await choosePort(usual, (other) => told.push(other))).toBe(usual);
    const squatter = createServer().listen(usual, '127.0.0.1');
    await once(squatter, 'listening');
    const other = await choosePort(usual, (port) => told.push(port)).finally(() => squatter.close());
    expect(other).not.toBe(usual);
    expect(told).toEqual([other]);
  });
});
