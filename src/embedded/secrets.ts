/**
 * The keys that `npm start` makes at its first start and keeps in the data folder, readable by its owner only.
 * Called by the `start` command; every other role is given its keys through the environment.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Secrets {
  adminKey: string;
  /** In the form of POSTHASTE_MASTER_KEYS. Whoever loses it can't open the endpoints' sealed secrets any more. */
  masterKeys: string;
}

export function ensureSecrets(dataDir: string): Secrets {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  return {
    adminKey: readOrMake(join(dataDir, 'admin-key'), () => `phk_${randomBytes(32).toString('base64url')}`),
    masterKeys: readOrMake(
      join(dataDir, 'master-keys'),
      () => `local1:${randomBytes(32).toString('base64')}`,
    ),
  };
}

function readOrMake(file: string, make: () => string): string {
  if (!existsSync(file)) writeFileSync(file, `${make()}\n`, { mode: 0o600, flag: 'wx' });
  chmodSync(file, 0o600);
  return readFileSync(file, 'utf8').trim();
}
