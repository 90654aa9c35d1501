/**
 * The way to scripts/temporal-cli.mjs, which finds or fetches the `temporal` program. Called by embedded/index.ts
 * and the test harness. The logic is plain JavaScript outside src because setup runs it before anything is built.
 */
interface TemporalCliModule {
  ensureTemporalCli(options: {
    env?: NodeJS.ProcessEnv;
    root?: string;
    say?: (text: string) => void;
  }): Promise<string>;
}

/** @param given the value of TEMPORAL_CLI as the caller read it; the process's own when left out. */
export async function ensureTemporalCli(say: (text: string) => void, given?: string): Promise<string> {
  const env = given === undefined ? process.env : { ...process.env, TEMPORAL_CLI: given };
  const module: TemporalCliModule = await import(
    new URL('../../scripts/temporal-cli.mjs', import.meta.url).href
  );
  return module.ensureTemporalCli({ env, say });
}
