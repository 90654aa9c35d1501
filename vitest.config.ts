/**
 * Two projects: `core` runs on every change, `heavy` (kills, outages, long runs) less often and one file at a time.
 * Both share the servers of test/support/global-setup.ts, which start when a test first asks for them.
 */
import { defineConfig } from 'vitest/config';

const shared = {
  pool: 'forks' as const,
  globalSetup: ['test/support/global-setup.ts'],
  restoreMocks: true,
  hookTimeout: 60_000,
  teardownTimeout: 30_000,
};

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      {
        test: {
          ...shared,
          name: 'core',
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.heavy.test.ts'],
          testTimeout: 60_000,
        },
      },
      {
        test: {
          ...shared,
          name: 'heavy',
          include: ['test/**/*.heavy.test.ts'],
          testTimeout: 300_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
