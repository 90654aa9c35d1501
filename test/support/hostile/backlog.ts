/** A listener that accepts no more connections: SYN packets to it are dropped, as behind a dead host. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** A stopped process with a full queue. `await using` kills it. */
export interface FullBacklog extends AsyncDisposable {
  readonly port: number;
}

const SCRIPT = `require('node:net').createServer()
  .listen({ port: 0, host: process.argv[1], backlog: 1 }, function () { console.log(this.address().port) })`;

/** @param host loopback address to listen on. */
export async function fullBacklog(host: string): Promise<FullBacklog> {
  const child = spawn(process.execPath, ['-e', SCRIPT, host], { stdio: ['ignore', 'pipe', 'inherit'] });
  const port = Number(String((await once(child.stdout, 'data'))[0]));
  // A stopped process accepts nothing; the kernel drops what exceeds its queue.
  child.kill('SIGSTOP');
  const fillers: Socket[] = [];
  for (let i = 0; i < 8; i++) fillers.push(connect(port, host).on('error', () => {}));
  await once(fillers[0] as Socket, 'connect');
  return {
    port,
    async [Symbol.asyncDispose]() {
      for (const filler of fillers) filler.destroy();
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}
