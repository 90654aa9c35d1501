/**
 * PostgreSQL refuses to run as root, so a root start runs it as a user without rights, who must be able to reach
 * the program and the data. Called by postgres.ts; everything here is a no-op for ordinary users.
 */
import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { dirname } from 'node:path';

export interface User {
  name: string;
  uid: number;
  gid: number;
}

/** The user to run PostgreSQL as: `postgres` where it exists, else `nobody`; null when we are not root ourselves. */
export function unprivilegedUser(): User | null {
  if (process.getuid?.() !== 0) return null;
  for (const name of ['postgres', 'nobody']) {
    try {
      const id = (flag: string) =>
        Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: 'pipe' }));
      return { name, uid: id('-u'), gid: id('-g') };
    } catch {
      // no such user
    }
  }
  throw new Error(
    'PostgreSQL does not run as root, and neither user `postgres` nor `nobody` exists. Start as another user, or set DATABASE_URL.',
  );
}

/** Whether `user` may pass through every folder from the root down to `directory`. */
export function canReach(directory: string, user: User | null): boolean {
  if (user === null) return true;
  for (let folder = directory; ; folder = dirname(folder)) {
    const info = statSync(folder);
    const bit = info.uid === user.uid ? 0o100 : info.gid === user.gid ? 0o010 : 0o001;
    if ((info.mode & bit) === 0) return false;
    if (folder === dirname(folder)) return true;
  }
}
