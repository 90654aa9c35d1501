/** A PostgreSQL of a test's own, migrated, for tests that stop it. It is stopped and removed after the file's tests. */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '../../src/db/migrate.ts';
import { startPostgres } from '../../src/embedded/postgres.ts';
import { cleanUpLater } from './clean-up.ts';
import type { TestDatabase } from './postgres.ts';

export interface OwnPostgres extends TestDatabase {
  /** `fast` ends sessions and writes a checkpoint; `immediate` is what a crash of the host looks like to clients. */
  stop(how?: 'fast' | 'immediate'): Promise<void>;
  /** Starts it again on the same port, after `stop()`; resolves when it answers. */
  restart(): Promise<void>;
}

export async function startOwnPostgres(): Promise<OwnPostgres> {
  const directory = await mkdtemp(join(tmpdir(), 'posthaste-test-'));
  const options = { directory, notice: () => {} };
  let server = await startPostgres({ ...options, port: 0 });
  const { port, url } = server;
  cleanUpLater(async () => {
    await server.stop();
    await rm(server.directory, { recursive: true, force: true });
    await rm(directory, { recursive: true, force: true });
  });
  await migrate(url);
  return {
    name: 'posthaste',
    url,
    adminUrl: url,
    drop: async () => {},
    async stop(how = 'fast') {
      if (how === 'fast') return server.stop();
      const pid = Number(
        readFileSync(join(server.directory, 'postgres', 'postmaster.pid'), 'utf8').split('\n')[0],
      );
      process.kill(pid, 'SIGQUIT');
      await server.exited;
    },
    async restart() {
      server = await startPostgres({ ...options, port });
      if (server.port !== port) throw new Error(`PostgreSQL's port ${port} was taken meanwhile.`);
    },
  };
}
