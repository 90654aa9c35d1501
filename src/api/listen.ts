/** Serves the API on a socket. Called by src/process.ts for the role api. */
import { serve } from '@hono/node-server';
import type { Config } from '../config.ts';
import { createApi, ensureAdminKey } from './server.ts';

export interface ListenOptions extends Omit<Parameters<typeof createApi>[0], 'config'> {
  config: Config;
}

export async function startApi(options: ListenOptions): Promise<{ url: string; close(): Promise<void> }> {
  const { config, ...deps } = options;
  if (config.adminKey !== undefined) await ensureAdminKey(options.db, config.adminKey);
  const api = createApi({
    ...deps,
    config: { egressAllow: config.egressAllow, masterKeys: config.masterKeys!, maxEventBytes: config.maxEventBytes },
  });
  const server = serve({ fetch: api.app.fetch, port: config.port, hostname: config.host });
  await new Promise<void>((resolve, reject) => {
    server.once('listening', resolve);
    server.once('error', (error: NodeJS.ErrnoException) => {
      const taken = error.code === 'EADDRINUSE' ? `port ${config.port} is taken; set PORT to another` : error.message;
      reject(new Error(`the API can't listen: ${taken}`, { cause: error }));
    });
  });
  const { port } = server.address() as { port: number };
  const host = config.host === '0.0.0.0' || config.host === '::' ? '127.0.0.1' : config.host;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    async close() {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        if ('closeIdleConnections' in server) server.closeIdleConnections();
        // Requests under way get a moment; a client that never ends its own must not hold the stop up.
        setTimeout(() => 'closeAllConnections' in server && server.closeAllConnections(), 5_000).unref();
      });
      await api.close();
    },
  };
}
