/** The one connection to Temporal of a process: worker and client share it, which eager starts need. */
import { NativeConnection, type NativeConnectionOptions, Runtime } from '@temporalio/worker';
import { type Log, temporalLogger } from '../log.ts';

let installed = false;

/** Temporal's own messages go into our log. The SDK allows this once per process, before the first connection. */
function installRuntime(log: Log): void {
  if (installed) return;
  installed = true;
  Runtime.install({ logger: temporalLogger(log), shutdownSignals: [] });
}

/**
 * Connects, trying again with backoff until it works or `signal` aborts: the SDK repeats everything but the first
 * connect. Each failure is logged with what to check.
 */
export async function connectTemporal(
  options: NativeConnectionOptions,
  log: Log,
  signal: AbortSignal,
): Promise<NativeConnection> {
  installRuntime(log);
  for (let wait = 250; ; wait = Math.min(5_000, wait * 2)) {
    signal.throwIfAborted();
    try {
      return await NativeConnection.connect(options);
    } catch (error) {
      log.warn(
        { err: error, address: options.address },
        'Temporal is not reachable; check TEMPORAL_ADDRESS; trying again',
      );
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, wait);
        function done(): void {
          clearTimeout(timer);
          signal.removeEventListener('abort', done);
          resolve();
        }
        signal.addEventListener('abort', done);
      });
    }
  }
}
