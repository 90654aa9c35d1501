/**
 * `npm start`: everything on one machine, with what the environment does not name embedded, a demo receiver and one
 * demo event through the real path. Called by src/main.ts.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Config, StartConfig } from './config.ts';
import { migrate } from './db/migrate.ts';
import { startDemoReceiver } from './demo/receiver.ts';
import { runDemo } from './demo/run.ts';
import { parseEgressAllow } from './domain/addresses.ts';
import { ensureSecrets, startEmbedded } from './embedded/index.ts';
import { createLog } from './log.ts';
import { startProcess } from './process.ts';
import { parseMasterKeys } from './secrets.ts';

export async function start(given: StartConfig, signal: AbortSignal): Promise<{ stop(): Promise<void> }> {
  const say = (text: string): void => void process.stdout.write(`${text}\n`);
  const log = createLog({ level: given.logLevel === 'info' ? 'warn' : given.logLevel });
  const embedded = await startEmbedded({
    dataDir: given.dataDir,
    log: { info: say },
    databaseUrl: given.databaseUrl,
    temporalCli: given.temporalCli,
    temporalAddress: given.temporal.given ? given.temporal.address : undefined,
    onFailure: (text) => {
      process.stderr.write(`posthaste: ${text}\n`);
      process.kill(process.pid, 'SIGTERM');
    },
  });
  const closers: (() => Promise<void>)[] = [() => embedded.stop()];
  const stop = async (): Promise<void> => {
    say('stopping…');
    for (const close of closers.reverse())
      await close().catch((error: unknown) => log.warn({ err: error }, 'a part did not stop cleanly'));
  };
  try {
    const secrets = ensureSecrets(given.dataDir);
    const receiver = await startDemoReceiver({ log: { info: () => {} } });
    closers.push(() => receiver.close());
    const databaseUrl = embedded.databaseUrl;
    const urlFile = join(given.dataDir, 'database-url');
    if (given.databaseUrl === undefined) writeFileSync(urlFile, databaseUrl, { mode: 0o600 });
    const connectionOptions = given.temporal.given
      ? given.temporal.connectionOptions
      : { ...given.temporal.connectionOptions, address: embedded.temporalAddress };
    const config: Config = {
      ...given,
      databaseUrl,
      databaseDirectUrl: process.env.DATABASE_DIRECT_URL || databaseUrl,
      temporal: { ...given.temporal, address: embedded.temporalAddress, connectionOptions },
      adminKey: given.adminKey ?? secrets.adminKey,
      masterKeys: given.masterKeys ?? parseMasterKeys(secrets.masterKeys),
      // The demo receiver's port on loopback and nothing else, besides what EGRESS_ALLOW names.
      egressAllow: {
        items: [...given.egressAllow.items, ...parseEgressAllow(`127.0.0.1/32:${receiver.port}`).items],
      },
    };
    await migrate(config.databaseDirectUrl, config);
    const running = await startProcess({ config, roles: ['api', 'relay', 'worker'], log, signal });
    closers.push(() => running.stop());
    const demo = await runDemo({
      api: running.url!,
      adminKey: config.adminKey!,
      receiverUrl: receiver.url,
      dataDir: given.dataDir,
      useSecret: receiver.useSecret,
    });
    const line = await receiver.received(demo.event);
    say('');
    say(`  API            ${running.url}`);
    say(`  Admin key      ${config.adminKey}`);
    say(`  Dashboard      ${running.url}/`);
    if (given.databaseUrl === undefined) say(`  PostgreSQL     psql "$(cat ${urlFile})"`);
    say(`  Temporal UI    ${embedded.temporalUiUrl ?? `(your server at ${config.temporal.address})`}`);
    say(
      `  Demo receiver  ${receiver.url} (loopback is allowed for this port only; EGRESS_ALLOW adds others)`,
    );
    say(`  It received    ${line}`);
    say('');
    say('Ready. Ctrl-C stops everything.');
    return { stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
