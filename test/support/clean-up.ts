/**
 * What a test file leaves behind and must be gone after its tests. Registered while the file is being read, because
 * vitest ignores `afterAll` when a test is already running.
 */
import { afterAll } from 'vitest';

const jobs: (() => unknown)[] = [];

/** Runs `job` after the file's tests; the last one given runs first. */
export function cleanUpLater(job: () => unknown): void {
  jobs.push(job);
}

afterAll(async () => {
  const errors: unknown[] = [];
  for (const job of jobs.splice(0).reverse()) {
    await Promise.resolve()
      .then(job)
      .catch((error: unknown) => errors.push(error));
  }
  if (errors.length > 0)
    throw new AggregateError(errors, 'Something a test left behind could not be removed.');
});
