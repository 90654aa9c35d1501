/**
 * Makes a checkout ready to run: dependencies, the Temporal CLI, dist/, the workflow bundle; each only when needed.
 * Run by `npm start`, `npm test` and the test harness. Dependency-free, for any Node from 20 on.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { withLock } from './lock.mjs';
import { ensureTemporalCli } from './temporal-cli.mjs';

const root = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '');
const stampFile = join(root, 'node_modules', '.posthaste-setup.json');
const say = (text) => console.error(`setup: ${text}`);

function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return {};
  }
}

/** What earlier runs left ready. It lives in node_modules, so that it goes when what it describes goes. */
function remember(values) {
  writeFileSync(stampFile, JSON.stringify({ ...readJson(stampFile), ...values }));
}

function run(command, args, what) {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2] });
  if (result.error) throw new Error(`${what} failed: ${result.error.message}`);
  if (result.status !== 0) throw new Error(`${what} failed; see its messages above.`);
}

function hash(parts) {
  const digest = createHash('sha256');
  for (const part of parts) digest.update(part);
  return digest.digest('hex');
}

function installDependencies() {
  const lock = hash([readFileSync(join(root, 'package-lock.json'))]);
  if (readJson(stampFile).lock === lock) return;
  if (!isInstalled()) {
    say('installing dependencies …');
    const npm = process.env.npm_execpath;
    const install = [
      existsSync(join(root, 'node_modules')) ? 'install' : 'ci',
      '--include=dev',
      '--loglevel=error',
    ];
    run(...(npm ? [process.execPath, [npm, ...install]] : ['npm', install]), 'npm install');
  }
  remember({ lock });
}

/** Whether somebody's own `npm install` already brought every package of the lock file. */
function isInstalled() {
  const installed = readJson(join(root, 'node_modules', '.package-lock.json')).packages;
  if (installed === undefined) return false;
  const wanted = Object.entries(readJson(join(root, 'package-lock.json')).packages);
  return wanted.every(([path, { version, optional, devOptional }]) => {
    return path === '' || optional || devOptional || installed[path]?.version === version;
  });
}

/** Every file below `folder` with its size and time: a cheap answer to "did anything change, come or go?" */
function listing(folder) {
  const entries = readdirSync(join(root, folder), { withFileTypes: true, recursive: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
  return files.sort().map(describe);
}

function describe(path) {
  const { size, mtimeMs } = statSync(path);
  return `${relative(root, path)}:${size}:${mtimeMs}\n`; // relative: a checkout may be moved or copied
}

/** The node that runs Posthaste: the pinned one of node_modules, whatever runs this script. */
function pinnedNode() {
  const pinned = join(root, 'node_modules', '.bin', 'node');
  return existsSync(pinned) ? pinned : process.execPath;
}

function build() {
  const settings = ['tsconfig.json', 'tsconfig.build.json', 'package-lock.json'].map((name) =>
    describe(join(root, name)),
  );
  const sources = listing('src');
  const build = hash([...sources, ...settings]);
  const main = join(root, 'dist', 'main.js');
  const names = sources.map((line) => line.slice(0, line.indexOf(':')));
  const before = readJson(stampFile);
  if (before.build !== build || !existsSync(main)) {
    say('building …');
    // A source that went must not leave its output behind.
    for (const name of before.names ?? []) {
      if (!names.includes(name))
        for (const end of ['.js', '.js.map', '.d.ts']) rmSync(output(name, end), { force: true });
    }
    const state = join(root, 'node_modules', '.cache', 'posthaste', 'build.tsbuildinfo');
    // tsc's own memory is of what it wrote, not of what is still there.
    const isCode = (name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts');
    if (names.filter(isCode).some((name) => !existsSync(output(name, '.js')))) rmSync(state, { force: true });
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const incremental = ['--incremental', '--tsBuildInfoFile', state];
    run(pinnedNode(), [tsc, '-p', 'tsconfig.build.json', ...incremental], 'The build');
    remember({ build, names, bundle: undefined });
  }
  bundle(build);
}

/** What tsc makes of a source. */
function output(source, end) {
  return join(root, 'dist', relative('src', source)).replace(/\.tsx?$/, end);
}

/** dist/temporal/bundle.js makes and caches the bundle itself; here it is only spared the wait at start-up. */
function bundle(build) {
  const module = join(root, 'dist', 'temporal', 'bundle.js');
  if (!existsSync(module) || readJson(stampFile).bundle === build) return;
  const script = `import(${JSON.stringify(pathToFileURL(module).href)}).then((m) => m.ensureWorkflowBundle())`;
  run(pinnedNode(), ['-e', script], 'Bundling the workflows');
  remember({ bundle: build });
}

async function main() {
  await withLock(join(root, '.posthaste', 'setup.lock'), say, async () => {
    installDependencies();
    build();
    if (!process.env.TEMPORAL_ADDRESS) await ensureTemporalCli({ root, say });
  });
}

main().catch((error) => {
  say(error.message);
  process.exit(1);
});
