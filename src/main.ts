/** Commands: `posthaste start | all | api | relay | worker | migrate`. Reads the environment once, via src/config.ts. */
import type { ConnectionOptions } from '@temporalio/client';
import { Command, Option } from 'commander';
import { type Config, type Role as ConfigRole, loadConfig, type Problem, renderProblems } from './config.ts';
import { migrate } from './db/migrate.ts';
import { createPool } from './db/pool.ts';
import { createLog } from './log.ts';
import { type Role, type RunningProcess, startProcess } from './process.ts';
import { reseal } from './reseal.ts';
import { start } from './start.ts';
import { LANE_QUEUES, type Lane } from './workflows/contract.ts';

const program = new Command('posthaste').description(
  'Webhooks, delivered: signed, at least once, every attempt visible.',
);

program
  .command('start')
  .description(
    'everything on this machine: embedded PostgreSQL and Temporal unless the environment names real ones',
  )
  .action(async () => {
    const loaded = loadConfig(process.env, 'start');
    if (!loaded.ok) return refuse(loaded.problems);
    await runUntilSignal((signal) => start(loaded.config, signal));
  });

program
  .command('migrate')
  .description(
    'bring the database to this version, make the next 14 day partitions, prepare the Temporal namespace',
  )
  .action(async () => {
    const config = configFor('migrate');
    if (config === null) return;
    const result = await migrate(config.databaseDirectUrl, config);
    const names = result.applied.length === 0 ? 'no new migrations' : result.applied.join(', ');
    process.stdout.write(`migrated: ${names}; ${result.partitions} partitions made\n`);
    if (config.temporal.given) {
      const { prepareNamespace } = await import('./temporal/namespace.ts');
      const { connectionOptions, namespace } = config.temporal;
      for (const line of await prepareNamespace(connectionOptions as ConnectionOptions, namespace)) {
        process.stdout.write(`${line}\n`);
      }
    }
  });

program
  .command('reseal')
  .description(
    'seal every stored secret under the newest of POSTHASTE_MASTER_KEYS; report how many each key seals',
  )
  .option('--check', 'only count')
  .action(async (flags: { check?: boolean }) => {
    const config = configFor('reseal');
    if (config === null) return;
    const db = createPool(config.databaseUrl, { max: 2 });
    try {
      const report = await reseal(db, config.masterKeys!, flags);
      for (const [key, count] of Object.entries(report.perKey))
        process.stdout.write(`${key}: ${count} values\n`);
      for (const { kind, id, keyId } of report.unreadable) {
        process.stderr.write(`${kind} ${id} does not open: add key ${keyId} to POSTHASTE_MASTER_KEYS\n`);
      }
      process.stdout.write(`resealed: ${report.resealed}\n`);
      if (report.unreadable.length > 0) process.exitCode = 1;
    } finally {
      await db.end();
    }
  });

const ROLES: Record<string, { roles: Role[]; description: string }> = {
  all: { roles: ['api', 'relay', 'worker'], description: 'api, relay and worker in one process' },
  api: { roles: ['api'], description: 'the HTTP API' },
  relay: { roles: ['relay'], description: 'outbox → deliveries → workflows, and the scanner' },
  worker: { roles: ['worker'], description: 'workflows and the requests to receivers' },
};

for (const [name, { roles, description }] of Object.entries(ROLES)) {
  const command = program.command(name).description(description);
  if (roles.includes('worker')) {
    command.addOption(
      new Option('--lanes <lanes>', `comma-separated: ${Object.keys(LANE_QUEUES).join(', ')}`).argParser(
        parseLanes,
      ),
    );
  }
  command.action(async (flags: { lanes?: Lane[] }) => {
    const config = configFor(name as Exclude<ConfigRole, 'start'>);
    if (config === null) return;
    const log = createLog({ level: config.logLevel, fields: { role: name } });
    await runUntilSignal(async (signal) => {
      const running = await startProcess({
        config,
        roles,
        log,
        signal,
        ...(flags.lanes === undefined ? {} : { lanes: flags.lanes }),
      });
      log.info({ url: running.url, pid: process.pid }, 'ready');
      return running;
    });
  });
}

function parseLanes(text: string): Lane[] {
  const lanes = text.split(',').map((lane) => lane.trim());
  for (const lane of lanes) {
    if (!(lane in LANE_QUEUES))
      program.error(
        `error: --lanes knows ${Object.keys(LANE_QUEUES).join(', ')}; not ${JSON.stringify(lane)}`,
      );
  }
  return lanes as Lane[];
}

function configFor(role: Exclude<ConfigRole, 'start'>): Config | null {
  const loaded = loadConfig(process.env, role);
  if (loaded.ok) return loaded.config;
  refuse(loaded.problems);
  return null;
}

function refuse(problems: Problem[]): void {
  process.stderr.write(`${renderProblems(problems)}\n`);
  process.exitCode = 2;
}

/** npm and a terminal both pass Ctrl-C on: what follows the first signal this soon is the same keystroke. */
const SAME_SIGNAL_MS = 1_000;

/** Runs until SIGINT or SIGTERM, then stops in order. A signal while stopping ends the process at once. */
async function runUntilSignal(
  begin: (signal: AbortSignal) => Promise<Pick<RunningProcess, 'stop'>>,
): Promise<void> {
  const abort = new AbortController();
  let signalledAt = Number.POSITIVE_INFINITY;
  let interrupt: () => void = () => {};
  const interrupted = new Promise<void>((resolve) => {
    interrupt = resolve;
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (performance.now() - signalledAt > SAME_SIGNAL_MS) process.exit(130);
      signalledAt = Math.min(signalledAt, performance.now());
      abort.abort();
      interrupt();
    });
  }
  const beginning = begin(abort.signal);
  // A failure to begin ends the command; a signal meanwhile waits for what has begun, to stop it in order.
  await Promise.race([beginning, interrupted]);
  await interrupted;
  const running = await beginning.catch(() => undefined);
  await running?.stop();
  process.exit(0);
}

program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`posthaste: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});
