/** Picks a port on loopback: the usual one when it is free, any free one otherwise. Called by the embedded servers. */
import { createServer } from 'node:net';

/** Listens for a moment to see whether `port` can be had; 0 takes any. Resolves null when it is taken. */
function tryPort(port: number): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(null);
      else reject(error);
    });
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address() as { port: number };
      server.close(() => resolve(address.port));
    });
  });
}

/** `preferred`, or another free port after telling `onTaken`. */
export async function choosePort(preferred: number, onTaken?: (other: number) => void): Promise<number> {
  const wanted = await tryPort(preferred);
  if (wanted !== null) return wanted;
  const other = (await tryPort(0)) as number;
  onTaken?.(other);
  return other;
}
