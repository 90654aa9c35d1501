/** The one connection to Temporal of a process: worker and client share it, which eager starts need. */
import { NativeConnection, type NativeConnectionOptions } from '@temporalio/worker';
import type { Log } from '../log.ts';

/**
 * Connects, trying again with backoff until it works or `signal` aborts: the SDK repeats everything but the first
 * connect. Each failure is logged with what to check.
 */
export async function connectTemporal(options: NativeConnectionOptions, log: Log, signal: AbortSignal): Promise<NativeConnection> {
  for (let wait = 250; ; wait = Math.min(5_000, wait * 2)) {
    signal.throwIfAborted();
    try {
      return await NativeConnection.connect(options);
    } catch (error) {
      log.warn({ err: error, address: options.address }, 'Temporal is not reachable; check TEMPORAL_ADDRESS; trying again');
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
