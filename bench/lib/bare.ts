/**
 * The bare loop, in a process of its own: sign and POST with undici, and nothing else. What every figure is shown
 * beside: the most that Node can send to this receiver on this machine at this moment.
 */
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { Pool } from 'undici';
import { serve } from './child.ts';

export interface BareOptions {
  origin: string;
  count: number;
  connections: number;
  bytes: number;
  ca?: string;
  /** A connection for each POST. */
  cold?: boolean;
}

export interface BareResult {
  perSecond: number;
  /** CPU of this process, microseconds per POST. */
  cpuUs: number;
}

async function run(options: BareOptions): Promise<BareResult> {
  const pool = new Pool(options.origin, {
    connections: options.connections,
    pipelining: options.cold === true ? 0 : 1,
    ...(options.ca === undefined ? {} : { connect: { ca: options.ca } }),
  });
  const key = createSecretKey(randomBytes(32));
  const body = Buffer.from(
    JSON.stringify({
      id: 'evt_x',
      type: 'bench.made',
      data: { a: 'x'.repeat(Math.max(0, options.bytes - 50)) },
    }),
  );
  const post = async (index: number): Promise<void> => {
    const id = `evt_${index}`;
    const timestamp = String(Math.floor(Date.now() / 1_000));
    const signature = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
    const response = await pool.request({
      path: '/bare/0',
      method: 'POST',
      body,
      headers: {
        'content-type': 'application/json',
        'webhook-id': id,
        'webhook-timestamp': timestamp,
        'webhook-signature': `v1,${signature}`,
      },
    });
    await response.body.dump();
  };
  const loop = async (count: number): Promise<void> => {
    let next = 0;
    await Promise.all(
      Array.from({ length: options.connections }, async () => {
        while (next < count) await post(next++);
      }),
    );
  };
  await loop(Math.max(options.connections * 3, Math.ceil(options.count / 5))); // compiled and connected
  const cpu = process.cpuUsage();
  const started = performance.now();
  await loop(options.count);
  const seconds = (performance.now() - started) / 1_000;
  const used = process.cpuUsage(cpu);
  await pool.close();
  return { perSecond: options.count / seconds, cpuUs: (used.user + used.system) / options.count };
}

serve({ run });
