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

export async function ensureTemporalCli(say: (text: string) => void, env = process.env): Promise<string> {
  const module: TemporalCliModule = await import(
    new URL('../../scripts/temporal-cli.mjs', import.meta.url).href
  );
  return module.ensureTemporalCli({ env, say });
}
