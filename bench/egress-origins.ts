/**
 * What many cold endpoints cost: resident memory and open descriptors while each of 20,000 distinct origins gets one
 * POST, and 10 s later. `node bench/egress-origins.ts [origins] [parallel]`. Origins are loopback addresses; the one
 * receiver is a process of its own, so that only our side is counted. With --expose-gc the heap is shown after a
 * collection. V8 may keep freed pages in the resident set; the heap figures tell what is really held.
 */
import { fork } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseEgressAllow } from '../src/domain/addresses.ts';
import { createEgress } from '../src/egress/post.ts';

const MB = 1024 * 1024;
/** The receiver takes this long, so that connections overlap. */
const ANSWER_MS = 20;

function receive(): void {
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => setTimeout(() => response.end('ok'), ANSWER_MS));
  });
  server.listen(0, '0.0.0.0', 1024, () => process.send?.((server.address() as { port: number }).port));
}

function usage(): { rss: number; used: number; total: number; descriptors: number } {
  const { rss, heapUsed, heapTotal } = process.memoryUsage();
  return {
    rss: rss / MB,
    used: heapUsed / MB,
    total: heapTotal / MB,
    descriptors: readdirSync('/proc/self/fd').length,
  };
}

function show(when: string): void {
  const { rss, used, total, descriptors } = usage();
  const heap = `heap ${used.toFixed(0)} of ${total.toFixed(0)} MB`;
  console.log(`${when}: rss ${rss.toFixed(0)} MB, ${heap}, ${descriptors} descriptors`);
}

async function main(): Promise<void> {
  const origins = Number(process.argv[2] ?? 20_000);
  const parallel = Number(process.argv[3] ?? 500);
  const child = fork(new URL(import.meta.url), ['receive']);
  const port = await new Promise<number>((resolve) =>
    child.once('message', (message) => resolve(Number(message))),
  );
  const egress = createEgress({ allow: parseEgressAllow('127.0.0.0/8:*') });
  const body = Buffer.alloc(1024, 'x');
  const outcomes = new Map<string, number>();
  const post = async (i: number) => {
    const host = `127.${1 + Math.floor(i / 62_500)}.${Math.floor(i / 250) % 250}.${1 + (i % 250)}`;
    const result = await egress.post({
      url: `http://${host}:${port}/hook`,
      tenant: `t${i % 1_000}`,
      endpoint: `ep_${i}`,
      revision: 1,
      headers: [['content-type', 'application/json']],
      body,
      timeoutMs: 15_000,
      connections: 10,
    });
    outcomes.set(result.class, (outcomes.get(result.class) ?? 0) + 1);
  };

  await Promise.all(Array.from({ length: 200 }, (_, i) => post(i)));
  await sleep(5_000);
  global.gc?.();
  show('before');
  let mostRss = 0;
  let mostDescriptors = 0;
  const sampler = setInterval(() => {
    const now = usage();
    mostRss = Math.max(mostRss, now.rss);
    mostDescriptors = Math.max(mostDescriptors, now.descriptors);
  }, 50);
  let next = 200;
  const cpu = process.cpuUsage();
  const started = performance.now();
  const worker = async () => {
    while (next < origins + 200) await post(next++);
  };
  await Promise.all(Array.from({ length: parallel }, worker));
  const seconds = (performance.now() - started) / 1000;
  const used = process.cpuUsage(cpu);
  clearInterval(sampler);
  const us = (used.user + used.system) / origins;
  console.log(
    `${origins} origins, ${parallel} at once: ${(origins / seconds).toFixed(0)}/s, ${us.toFixed(0)} us of CPU each`,
  );
  console.log(
    `most: rss ${mostRss.toFixed(0)} MB, ${mostDescriptors} descriptors; results ${JSON.stringify([...outcomes])}`,
  );
  show('right after');
  await sleep(10_000);
  global.gc?.();
  show('10 s later');
  console.log(egress.stats());
  await egress.close();
  child.kill();
}

if (process.argv[2] === 'receive') receive();
else await main();
