/** The API killed with SIGKILL the moment it has said 202, again and again: every event it accepted is received. */
import { request } from 'node:http';
import { expect } from 'vitest';
import { ADMIN_KEY, prepareEngine } from '../support/engine.ts';
import { freePort } from '../support/process.ts';
import { startReceiver } from '../support/receiver.ts';
import { audit, ended, type Running, seedCrowd, startReady } from './support.ts';

/** Posts one event and kills the process as the status line arrives. Answers the status. */
function postAndKill(api: Running, tenant: string, n: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const post = request(`${api.url}/v1/tenants/${tenant}/events`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
    });
    post.once('response', (response) => {
      response.on('error', () => {}); // the body may never be whole
      const gone = api.kill();
      gone.then(() => resolve(response.statusCode ?? 0), reject);
    });
    post.once('error', reject);
    post.end(JSON.stringify({ type: 'fault.test', data: { n }, id: `kill-${n}` }));
  });
}

/** `kills` events, each to an API process of its own; `lanes` of them start at a time. Relay and worker live apart. */
export async function killApi(options: { kills: number; lanes: number }): Promise<void> {
  const engine = await prepareEngine();
  const receiver = await startReceiver();
  const { tenants } = await seedCrowd(engine.db, {
    name: 'kill',
    tenants: 1,
    endpoints: 1,
    url: receiver.url,
  });
  const others = [await startReady(engine, 'relay'), await startReady(engine, 'worker')];
  let next = 0;
  const starts: number[] = [];
  const lane = async (): Promise<void> => {
    const port = String(await freePort());
    for (let n = next++; n < options.kills; n = next++) {
      const at = performance.now();
      const api = await startReady(engine, 'api', { PORT: port });
      starts.push(performance.now() - at);
      expect(await postAndKill(api, tenants[0]!, n)).toBe(202);
    }
  };
  const at = performance.now();
  await Promise.all(Array.from({ length: options.lanes }, lane));
  const took = performance.now() - at;
  await ended(engine.db, options.kills, 60_000);
  const result = await audit(engine.db, receiver.requests);
  starts.sort((a, b) => a - b);
  console.log(
    `${options.kills} kills in ${Math.round(took / 1_000)} s; a start took ${Math.round(starts[starts.length >> 1]!)} ms (median): ${JSON.stringify(result)}`,
  );
  expect(result).toEqual({ requests: options.kills, deliveries: options.kills, repeats: 0, unknown: 0 });
  expect(new Set(receiver.requests.map((r) => r.webhookId))).toEqual(
    new Set(Array.from({ length: options.kills }, (_, n) => `kill-${n}`)),
  );
  for (const other of others) expect(await other.terminate()).toBe(0);
  await receiver.close();
}
