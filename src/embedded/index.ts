/**
 * The servers that `npm start` brings along when the environment names no real ones: PostgreSQL and a Temporal dev
 * server, started side by side, kept in one data folder. Called by the `start` command.
 */
import { isAbsolute, resolve } from 'node:path';
import { lockDataFolder } from './lock.ts';
import { startPostgres } from './postgres.ts';
import { startTemporal } from './temporal.ts';
import { ensureTemporalCli } from './temporal-cli.ts';

export { ensureSecrets, type Secrets } from './secrets.ts';

export interface EmbeddedOptions {
  dataDir: string;
  log: { info(text: string): void };
  /** Given: used as it is, and no PostgreSQL is started. */
  databaseUrl?: string | undefined;
  /** Given: used as it is, and no Temporal server is started. */
  temporalAddress?: string | undefined;
  /** The `temporal` program; left out, it is found or fetched. */
  temporalCli?: string | undefined;
  ports?: { postgres?: number; temporal?: number; temporalUi?: number };
  /** Told when a server ends although nobody stopped it. */
  onFailure?: (text: string) => void;
}

export interface Embedded {
  databaseUrl: string;
  temporalAddress: string;
  /** Null when the Temporal server is not ours. */
  temporalUiUrl: string | null;
  /** Ends every server started here; harmless when called again. */
  stop(): Promise<void>;
}

interface Server {
  exited: Promise<string>;
  stop(): Promise<void>;
}

export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const directory = isAbsolute(options.dataDir) ? options.dataDir : resolve(options.dataDir);
  const release = lockDataFolder(directory);
  const notice = (text: string) => options.log.info(text);
  const running: Server[] = [];
  let stopping: Promise<void> | undefined;
  const stop = () => {
    stopping ??= Promise.all(running.map((server) => server.stop())).then(release);
    return stopping;
  };
  const watch = <T extends Server>(name: string, server: T): T => {
    running.push(server);
    void server.exited.then((reason) => {
      if (stopping === undefined) options.onFailure?.(`${name} ${reason}; see the logs in ${directory}.`);
    });
    return server;
  };
  const postgres = async () => {
    if (options.databaseUrl !== undefined) return options.databaseUrl;
    const port = options.ports?.postgres;
    const server = await startPostgres({ directory, notice, ...(port === undefined ? {} : { port }) });
    return watch('The embedded PostgreSQL', server).url;
  };
  const temporal = async () => {
    if (options.temporalAddress !== undefined) return { address: options.temporalAddress, uiUrl: null };
    const { temporal: port, temporalUi: uiPort } = options.ports ?? {};
    const cli = await ensureTemporalCli(notice, options.temporalCli);
    const ports = { ...(port === undefined ? {} : { port }), ...(uiPort === undefined ? {} : { uiPort }) };
    return watch('The embedded Temporal server', await startTemporal({ cli, directory, notice, ...ports }));
  };
  const [database, server] = await Promise.allSettled([postgres(), temporal()]);
  if (database.status === 'rejected' || server.status === 'rejected') {
    await stop();
    throw database.status === 'rejected' ? database.reason : (server as PromiseRejectedResult).reason;
  }
  return {
    databaseUrl: database.value,
    temporalAddress: server.value.address,
    temporalUiUrl: server.value.uiUrl,
    stop,
  };
}
