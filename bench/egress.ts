/**
 * What one POST costs: CPU per request of egress.post against a bare undici loop that signs and POSTs, in the same
 * run, alternating. `node bench/egress.ts [requests per round]`. The receiver is a process of its own, so that its
 * CPU is not counted. Prints microseconds of CPU and the ratio.
 */
import { fork } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import { Pool } from 'undici';
import { parseEgressAllow } from '../src/domain/addresses.ts';
import { deliveryHeaders } from '../src/domain/headers.ts';
import { createEgress } from '../src/egress/post.ts';
import { signatureHeader } from '../src/egress/sign.ts';

const CONCURRENCY = 50;
const ROUNDS = 3;
const ANSWER = Buffer.from('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok');

/** The cheapest receiver: counts bytes of known requests, parses nothing. */
function receive(): void {
  const server = createServer((socket) => {
    let left = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      let rest = chunk;
      while (rest.length > 0) {
        if (left === 0) {
          const text = rest.toString('latin1', 0, Math.min(rest.length, 4096));
          const end = text.indexOf('\r\n\r\n');
          const length = Number(/content-length: (\d+)/.exec(text)?.[1] ?? 0);
          left = end + 4 + length;
        }
        const taken = Math.min(left, rest.length);
        left -= taken;
        rest = rest.subarray(taken);
        if (left === 0) socket.write(ANSWER);
      }
    });
  });
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as { port: number }).port));
}

async function measure(
  requests: number,
  one: (i: number) => Promise<void>,
): Promise<{ us: number; rate: number }> {
  let next = 0;
  const worker = async () => {
    while (next < requests) await one(next++);
  };
  const cpu = process.cpuUsage();
  const started = performance.now();
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  const seconds = (performance.now() - started) / 1000;
  const used = process.cpuUsage(cpu);
  return { us: (used.user + used.system) / requests, rate: requests / seconds };
}

async function main(): Promise<void> {
  const requests = Number(process.argv[2] ?? 20_000);
  const child = fork(new URL(import.meta.url), ['receive']);
  const port = await new Promise<number>((resolve) =>
    child.once('message', (message) => resolve(Number(message))),
  );
  const url = `http://127.0.0.1:${port}/hook`;
  const key = randomBytes(32);
  const body = Buffer.from(
    JSON.stringify({ id: 'evt_x', type: 'invoice.paid', data: { a: 'x'.repeat(950) } }),
  );

  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONCURRENCY, pipelining: 1 });
  const bare = async (i: number) => {
    const ts = Math.floor(Date.now() / 1000);
    const id = `msg_${i}`;
    const mac = createHmac('sha256', key).update(`${id}.${ts}.`).update(body).digest('base64');
    const headers = {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(ts),
      'webhook-signature': `v1,${mac}`,
    };
    const response = await pool.request({ path: '/hook', method: 'POST', body, headers });
    await response.body.dump();
  };

  const egress = createEgress({ allow: parseEgressAllow('127.0.0.0/8:*') });
  const secrets = [{ kind: 'hmac' as const, key }];
  const ours = async (i: number) => {
    const timestampSeconds = Math.floor(Date.now() / 1000);
    const id = `msg_${i}`;
    const signature = signatureHeader(secrets, id, timestampSeconds, body);
    const head = { userAgent: 'Posthaste', contentType: 'application/json', id, timestampSeconds, signature };
    const result = await egress.post({
      url,
      tenant: 't1',
      endpoint: 'ep_1',
      revision: 1,
      headers: deliveryHeaders(head),
      body,
      timeoutMs: 15_000,
      connections: CONCURRENCY,
      startBefore: performance.now() + 10_000,
    });
    if (result.class !== 'ok') throw new Error(`${result.class}: ${result.error}`);
  };

  await measure(requests / 4, bare);
  await measure(requests / 4, ours);
  const bareUs: number[] = [];
  const oursUs: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const a = await measure(requests, bare);
    const b = await measure(requests, ours);
    bareUs.push(a.us);
    oursUs.push(b.us);
    const rates = `${a.rate.toFixed(0)}/s against ${b.rate.toFixed(0)}/s`;
    console.log(
      `bare ${a.us.toFixed(1)} us, posthaste ${b.us.toFixed(1)} us, ratio ${(b.us / a.us).toFixed(2)} (${rates})`,
    );
  }
  const best = Math.min(...oursUs) / Math.min(...bareUs);
  const { posts, connectionsOpened } = egress.stats();
  const perThousand = ((connectionsOpened * 1000) / posts).toFixed(1);
  console.log(`best of ${ROUNDS}: ratio ${best.toFixed(2)}`);
  console.log(`connections opened per 1,000 posts: ${perThousand} (cap ${CONCURRENCY})`);
  await egress.close();
  await pool.destroy();
  child.kill();
}

if (process.argv[2] === 'receive') receive();
else await main();
