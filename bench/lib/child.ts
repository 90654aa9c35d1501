/** Processes of the benchmark and how they talk: named calls over the channel that fork() opens. */
import { type ChildProcess, fork } from 'node:child_process';

export interface Child {
  pid: number;
  /** Calls a function that the child serves; rejects with its error, or when the child has ended. */
  call<T>(name: string, argument?: unknown): Promise<T>;
  stop(): Promise<void>;
}

interface Answer {
  call: number;
  value?: unknown;
  error?: string;
}

export function startChild(file: URL, env: Record<string, string> = {}): Child {
  const child: ChildProcess = fork(file, [], { stdio: 'inherit', env: { ...process.env, ...env } });
  const open = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  let calls = 0;
  let ended = false;
  child.on('message', ({ call, value, error }: Answer) => {
    const waiting = open.get(call);
    open.delete(call);
    if (error === undefined) waiting?.resolve(value as never);
    else waiting?.reject(new Error(error));
  });
  const exited = new Promise<void>((resolve) =>
    child.once('exit', (code, signal) => {
      ended = true;
      for (const { reject } of open.values()) reject(new Error(`${file} ended with ${signal ?? code}`));
      resolve();
    }),
  );
  return {
    pid: child.pid as number,
    call: (name, argument) =>
      new Promise((resolve, reject) => {
        if (ended) return reject(new Error(`${file} has ended`));
        const call = ++calls;
        open.set(call, { resolve, reject });
        child.send({ call, name, argument });
      }),
    async stop() {
      if (!ended) child.kill('SIGKILL');
      await exited;
    },
  };
}

/** In the child: answers the parent's calls. Ends with the parent. */
export function serve(functions: Record<string, (argument: never) => unknown>): void {
  process.on(
    'message',
    async ({ call, name, argument }: { call: number; name: string; argument: unknown }) => {
      try {
        process.send?.({ call, value: await functions[name]!(argument as never) });
      } catch (error) {
        process.send?.({ call, error: (error as Error).stack ?? String(error) });
      }
    },
  );
  process.on('disconnect', () => process.exit());
}
