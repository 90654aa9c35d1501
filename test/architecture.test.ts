/** The house rules that a machine can check: who imports whom, how long a file may get, no test left out. */
import { execFile } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';

const RULES = join(import.meta.dirname, '..', '.dependency-cruiser.cjs');
const ROOT = dirname(RULES);
const LONGEST = 400;

interface Violation {
  rule: string;
  from: string;
  to: string;
}

/** What the import rules say about `src` below `cwd`. */
async function violations(cwd: string): Promise<Violation[]> {
  const program = join(ROOT, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
  const args = [program, 'src', '--config', RULES, '--output-type', 'json'];
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  execFile(process.execPath, args, { cwd, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
    if (stdout === '') reject(new Error(`dependency-cruiser said nothing: ${stderr}`, { cause: error }));
    else resolve(stdout);
  });
  const { summary } = JSON.parse(await promise) as {
    summary: { violations: { from: string; to: string; rule: { name: string } }[] };
  };
  return summary.violations.map(({ from, to, rule }) => ({ rule: rule.name, from, to }));
}

function sources(...folders: string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(ts|tsx|mjs)$/.test(name))
      .map((name) => join(folder, name)),
  );
}

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

describe('the import rules', () => {
  it('hold for every file of src', async () => {
    expect(await violations(ROOT)).toEqual([]);
  }, 60_000);

  const forbidden: [rule: string, file: string, code: string][] = [
    ['domain-is-pure', 'domain/a.ts', "import 'node:crypto';"],
    ['domain-is-pure', 'domain/b.ts', "import 'zod';"],
    ['domain-is-pure', 'domain/c.ts', "import type {} from '../log.ts';"],
    ['workflows-are-deterministic', 'workflows/a.ts', "import '../db/target.ts';"],
    ['workflows-are-deterministic-types', 'workflows/b.ts', "import '../activities/target.ts';"],
    ['activities', 'activities/a.ts', "import 'undici';"],
    ['activities-types', 'activities/b.ts', "import '../temporal/target.ts';"],
    ['egress', 'egress/a.ts', "import '../db/target.ts';"],
    ['relay', 'relay/a.ts', "import '../egress/target.ts';"],
    ['db', 'db/a.ts', "import 'undici';"],
    ['temporal', 'temporal/a.ts', "import '../db/target.ts';"],
    ['api', 'api/a.ts', "import '../activities/target.ts';"],
    ['api', 'api/b.ts', "import 'pg';"],
    ['ui-on-view-models', 'api/ui/a.ts', "import '../../db/target.ts';"],
    ['cli', 'cli/a.ts', "import '../db/target.ts';"],
    ['client-stands-alone', 'client/a.ts', "import '../domain/target.ts';"],
    ['receiver-stands-alone', 'receiver/a.ts', "import '../domain/target.ts';"],
    ['temporal-client-stands-alone', 'temporal-client/index.ts', "import '../db/target.ts';"],
    ['temporal-client', 'temporal-client/a.ts', "import '../db/target.ts';"],
    ['demo', 'demo/a.ts', "import '../db/target.ts';"],
    ['embedded', 'embedded/a.ts', "import '../db/target.ts';"],
    ['root-files', 'log.ts', "import './db/target.ts';"],
    ['config-is-read-once', 'relay/b.ts', "import '../config.ts';"],
    ['composition-root-is-the-top', 'db/b.ts', "import '../main.ts';"],
    ['no-circle', 'db/c.ts', "import './d.ts';"],
    ['declared-packages-only', 'main.ts', "import 'fast-check';"],
    ['resolvable', 'db/e.ts', "import './nowhere.ts';"],
  ];

  it('catch each kind of forbidden import', async () => {
    const root = mkdtempSync(join(tmpdir(), 'posthaste-architecture-'));
    onTestFinished(() => rmSync(root, { recursive: true, force: true }));
    const folders = ['db', 'domain', 'egress', 'activities', 'temporal', 'workflows'];
    const targets = folders.map((folder): [string, string] => [`${folder}/target.ts`, 'export {};']);
    const circle: [string, string] = ['db/d.ts', "import './c.ts';"];
    const files = new Map([
      ...targets,
      circle,
      ['config.ts', 'export {};'],
      ...forbidden.map(([, file, code]) => [file, code] as const),
    ]);
    for (const [file, code] of files) {
      mkdirSync(dirname(join(root, 'src', file)), { recursive: true });
      writeFileSync(join(root, 'src', file), code);
    }
    for (const name of ['package.json', 'tsconfig.json']) writeFileSync(join(root, name), read(name));
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
    const found = await violations(root);
    for (const [rule, file, code] of forbidden) {
      expect.soft(found, code).toContainEqual(expect.objectContaining({ rule, from: `src/${file}` }));
    }
  }, 60_000);
});

describe('the files', () => {
  it(`have at most ${LONGEST} lines`, () => {
    const tooLong = sources('src', 'test', 'scripts').filter(
      (path) => read(path).split('\n').length > LONGEST + 1,
    );
    expect(tooLong).toEqual([]);
  });

  it('say at the top of each source what it is for', () => {
    const bare = sources('src', 'scripts').filter((path) => !/^(#!.*\n)?\/\*\*/.test(read(path)));
    expect(bare).toEqual([]);
  });

  it('have no test that is skipped, postponed or run alone', () => {
    const mark = /\b(it|test|describe)(\.\w+)*\.(only|skip|todo|fails)\b/;
    expect(sources('test').filter((path) => mark.test(read(path)))).toEqual([]);
  });
});
