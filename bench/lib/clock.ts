/** One clock for all processes of a benchmark: the machine's monotonic one. */
const offset = Number(process.hrtime.bigint()) / 1e6 - performance.now();

/** Milliseconds since some moment that is the same for every process of this machine. */
export const nowMs = (): number => performance.now() + offset;

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
