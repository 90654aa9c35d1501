/**
 * The workflow bundle: built once per version of the workflow code and the SDK, cached beside the compiled program.
 * Called by scripts/setup.mjs (so that a start finds it ready), by worker.ts and by the tests.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';

const here = dirname(fileURLToPath(import.meta.url));
const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
const WORKFLOWS = join(here, '..', 'workflows');
const DOMAIN = join(here, '..', 'domain');
const CACHE = join(here, '..', '..', 'dist', 'bundles');

/** Path of a bundle of the present workflow code; builds it when there is none (about 1.5 s). */
export async function ensureWorkflowBundle(): Promise<string> {
  const hash = createHash('sha256');
  for (const folder of [WORKFLOWS, DOMAIN]) {
    for (const name of (await readdir(folder))
      .filter((n) => n.endsWith(`.${extension}`) && !n.endsWith('.d.ts'))
      .sort()) {
      hash.update(`${name}\0`).update(await readFile(join(folder, name)));
    }
  }
  hash.update(createRequire(import.meta.url)('@temporalio/worker/package.json').version);
  const path = join(CACHE, `workflows-${hash.digest('hex').slice(0, 16)}.js`);
  try {
    await readFile(path, { encoding: 'utf8', flag: 'r' });
    return path;
  } catch {
    const { code } = await bundleWorkflowCode({
      workflowsPath: join(WORKFLOWS, `index.${extension}`),
      logger: new DefaultLogger('ERROR'),
    });
    await mkdir(CACHE, { recursive: true });
    const draft = `${path}.${process.pid}`;
    await writeFile(draft, code);
    await rename(draft, path);
    return path;
  }
}
