/**
 * A namespace of its own for each test file on the shared Temporal dev server, so that task queues and workflow ids
 * of different files never meet. Also a server of a test's own, for tests that stop or wipe it.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { msToTs } from '@temporalio/common/lib/time.js';
import { type EmbeddedTemporal, SEARCH_ATTRIBUTES, startTemporal } from '../../src/embedded/temporal.ts';
import { ensureTemporalCli } from '../../src/embedded/temporal-cli.ts';
import { cleanUpLater } from './clean-up.ts';
import { shared } from './shared.ts';

export interface TestNamespace {
  address: string;
  namespace: string;
  client: Client;
}

/** Call it in `beforeAll`. The connection is closed after the file's tests; the server goes with the run. */
export async function createNamespace(options: { attributes?: boolean } = {}): Promise<TestNamespace> {
  const { address } = await shared('temporal');
  const namespace = `test-${randomBytes(5).toString('hex')}`;
  const connection = await Connection.connect({ address });
  cleanUpLater(() => connection.close());
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: msToTs('1 day'),
  });
  if (options.attributes !== false) await addSearchAttributes(connection, namespace);
  return { address, namespace, client: new Client({ connection, namespace }) };
}

/** A namespace becomes known to the server's parts one after the other; the last one is the one that counts here. */
async function addSearchAttributes(connection: Connection, namespace: string): Promise<void> {
  const kinds = { Keyword: 2, Int: 3 }; // temporal.api.enums.v1.IndexedValueType
  const searchAttributes = Object.fromEntries(
    Object.entries(SEARCH_ATTRIBUTES).map(([name, kind]) => [name, kinds[kind]]),
  );
  for (let tries = 1; ; tries++) {
    try {
      await connection.operatorService.addSearchAttributes({ namespace, searchAttributes });
      return;
    } catch (error) {
      if (tries === 100 || !/not found/i.test(String(error))) throw error;
      await delay(50);
    }
  }
}

export interface OwnTemporal extends EmbeddedTemporal {
  /** Starts it again on the same port with what it kept, after `stop()`. */
  restart(): Promise<void>;
  /** Removes all it kept; call it while stopped. */
  wipe(): Promise<void>;
}

/** A persistent server for one test. It is stopped and removed after the file's tests. */
export async function startOwnTemporal(): Promise<OwnTemporal> {
  const cli = await ensureTemporalCli(console.error);
  const directory = await mkdtemp(join(tmpdir(), 'posthaste-test-'));
  let server = await startTemporal({ cli, directory, notice: () => {}, port: 0, uiPort: 0 });
  const port = Number(server.address.split(':')[1]);
  cleanUpLater(async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });
  return {
    address: server.address,
    uiUrl: null,
    exited: server.exited,
    stop: () => server.stop(),
    async restart() {
      server = await startTemporal({ cli, directory, notice: () => {}, port, uiPort: 0 });
    },
    async wipe() {
      for (const end of ['', '-wal', '-shm']) await rm(join(directory, `temporal.db${end}`), { force: true });
    },
  };
}
