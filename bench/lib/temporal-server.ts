/**
 * A Temporal server as it is run in production: the server program on a PostgreSQL of its own, instead of the dev
 * server on SQLite. For `npm run bench -- --temporal-server <folder>`, where the folder has the programs `server` and
 * `sql` (`go install go.temporal.io/server/cmd/server@v1.32.0 go.temporal.io/server/cmd/tools/sql@v1.32.0`). CPU of
 * `tmp` is then the server's and its PostgreSQL's together.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Connection } from '@temporalio/client';
import { startPostgres } from '../../src/embedded/postgres.ts';
import { prepareNamespace } from '../../src/temporal/namespace.ts';
import { nowMs, sleep } from './clock.ts';
import { freePort, type Temporal } from './servers.ts';

const run = promisify(execFile);
const SETTLE_MS = 15_000;
const STORES = { temporal: 'temporal', temporal_visibility: 'visibility' } as const;

export async function startTemporalServer(programs: string): Promise<Temporal> {
  const directory = await mkdtemp(join(tmpdir(), 'posthaste-bench-'));
  const database = await startPostgres({ directory, notice: () => {}, port: 0 });
  const { hostname, port, username, password } = new URL(database.url);
  for (const [name, schema] of Object.entries(STORES)) {
    const sql = (...what: string[]) =>
      run(join(programs, 'sql'), [
        ...['--plugin', 'postgres12', '--ep', hostname, '-p', port, '-u', username, '--pw', password],
        ...['--db', name, ...what],
      ]);
    await sql('create');
    await sql('setup-schema', '-v', '0.0');
    await sql('update-schema', '--schema-name', `postgresql/v12/${schema}`);
  }
  const [frontend, metrics] = [await freePort(), await freePort()];
  // Temporal keeps these in a smallint, below the ports that the system hands out.
  let membershipPort = 20_000 + Math.floor(Math.random() * 10_000);
  const service = (grpcPort: number) => ({
    rpc: { grpcPort, membershipPort: membershipPort++, bindOnLocalHost: true },
  });
  const store = (databaseName: string) => ({
    sql: {
      pluginName: 'postgres12',
      databaseName,
      connectAddr: `${hostname}:${port}`,
      connectProtocol: 'tcp',
      user: username,
      password,
      maxConns: 20,
      maxIdleConns: 20,
    },
  });
  const config = join(directory, 'temporal.yaml');
  // JSON is YAML.
  await writeFile(
    config,
    JSON.stringify({
      log: { stdout: true, level: 'error' },
      persistence: {
        defaultStore: 'main',
        visibilityStore: 'visibility',
        numHistoryShards: 4,
        datastores: { main: store('temporal'), visibility: store('temporal_visibility') },
      },
      global: {
        membership: { maxJoinDuration: '30s', broadcastAddress: '127.0.0.1' },
        metrics: {
          prometheus: {
            framework: 'tally',
            timerType: 'histogram',
            listenAddress: `127.0.0.1:${metrics}`,
          },
        },
      },
      services: {
        frontend: service(frontend),
        matching: service(await freePort()),
        history: service(await freePort()),
        worker: service(await freePort()),
      },
      clusterMetadata: {
        failoverVersionIncrement: 10,
        masterClusterName: 'active',
        currentClusterName: 'active',
        clusterInformation: {
          active: {
            enabled: true,
            initialFailoverVersion: 1,
            rpcName: 'frontend',
            rpcAddress: `127.0.0.1:${frontend}`,
          },
        },
      },
      dcRedirectionPolicy: { policy: 'noop' },
    }),
  );
  const server = spawn(join(programs, 'server'), ['--config-file', config, '--allow-no-auth', 'start'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  server.stdout.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-4_000);
  });
  const stop = async (): Promise<void> => {
    const gone = server.exitCode === null ? once(server, 'exit') : undefined;
    server.kill('SIGTERM');
    await gone;
    await database.stop();
    await rm(database.directory, { recursive: true, force: true });
    await rm(directory, { recursive: true, force: true });
  };
  const address = `127.0.0.1:${frontend}`;
  try {
    await makeNamespace(address);
  } catch (error) {
    await stop();
    throw new Error(`the Temporal server did not come up: ${(error as Error).message}\n${said}`);
  }
  await prepareNamespace({ address }, 'default');
  const readyAt = nowMs() + SETTLE_MS;
  return {
    pid: server.pid!,
    postgresPid: Number(
      readFileSync(join(database.directory, 'postgres', 'postmaster.pid'), 'utf8').split('\n')[0],
    ),
    address,
    metricsUrl: `http://127.0.0.1:${metrics}/metrics`,
    settled: () => sleep(readyAt - nowMs()),
    stop,
  };
}

async function makeNamespace(address: string): Promise<void> {
  for (const end = nowMs() + 60_000; ; await sleep(500)) {
    let connection: Connection | undefined;
    try {
      connection = await Connection.connect({ address, connectTimeout: 2_000 });
      await connection.workflowService.registerNamespace({
        namespace: 'default',
        workflowExecutionRetentionPeriod: { seconds: 86_400 as unknown as never },
      });
      return;
    } catch (error) {
      if (/already exists/i.test(String(error))) return;
      if (nowMs() > end) throw error;
    } finally {
      await connection?.close();
    }
  }
}
