/** A Temporal test server whose clock jumps to the next timer: three days pass in seconds. One per test file. */
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { DefaultLogger, Runtime } from '@temporalio/worker';
import { cleanUpLater } from './clean-up.ts';

interface TemporalCliModule {
  ensureTestServer(options: { say?: (text: string) => void }): Promise<string>;
}

/** Call it in `beforeAll`, with time for a download of 27 MB on the first run of a machine. */
export async function startTimeSkipping(): Promise<TestWorkflowEnvironment> {
  const cli: TemporalCliModule = await import(
    new URL('../../scripts/temporal-cli.mjs', import.meta.url).href
  );
  const path = await cli.ensureTestServer({});
  Runtime.install({ logger: new DefaultLogger('ERROR'), telemetryOptions: { logging: { filter: 'ERROR' } } });
  const environment = await TestWorkflowEnvironment.createTimeSkipping({
    server: { executable: { type: 'existing-path', path } },
  });
  cleanUpLater(() => environment.teardown());
  return environment;
}
