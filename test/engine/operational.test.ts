/** Operational events: what happens to tenants' endpoints arrives at the operators' own, through Posthaste itself. */
import { Webhook } from 'standardwebhooks';
import { beforeAll, describe, expect, it } from 'vitest';
import { moveEndpoint } from '../../src/db/endpoint-states.ts';
import { ADMIN_KEY, prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';
import { enqueueMany, seedEndpoint, seedTenant } from '../support/seed.ts';
import { startSmtp, type TestSmtp } from '../support/smtp.ts';

let engine: TestEngine;
let smtp: TestSmtp;
let operators: TestReceiver;
let secret: string;
let operatorEndpoint: string;
beforeAll(async () => {
  engine = await prepareEngine();
  smtp = await startSmtp();
  engine.config.smtpUrl = smtp.url;
  engine.config.mailFrom = 'hooks@sender.example';
  operators = await startReceiver();
  ({ id: operatorEndpoint, secret } = await seedEndpoint(engine.db, 'posthaste', { url: operators.url }));
  await engine.start();
});

interface Operational {
  id: string;
  type: string;
  data: Record<string, unknown>;
}
const arrived = (): Operational[] =>
  operators.requests.map(
    (request) =>
      new Webhook(secret).verify(request.body.toString(), request.headers) as unknown as Operational,
  );
const about = (endpoint: string): Operational[] => arrived().filter(({ data }) => data.endpoint === endpoint);
const has = (endpoint: string, type: string) =>
  operators.waitForRequest((request) => {
    const { type: its, data } = JSON.parse(request.body.toString()) as Operational;
    return its === `posthaste.endpoint.${type}` && data.endpoint === endpoint;
  });

describe('an operator endpoint', () => {
  it('hears of an endpoint that fails and recovers, signed, once per edge', async () => {
    await seedTenant(engine.db, 'acme');
    let healthy = false;
    const receiver = await startReceiver({ respond: () => ({ status: healthy ? 200 : 503 }) });
    const { id } = await seedEndpoint(engine.db, 'acme', {
      url: `${receiver.url}/secret?token=s3cret`,
      policy: { schedule: Array.from({ length: 25 }, () => '20ms') },
    });
    await enqueueMany(engine.db, 'acme', 'a.b', 3); // few, so that little has to be caught up
    await has(id, 'failing');
    healthy = true;
    await moveEndpoint(engine.db, null, id, 'pause');
    await moveEndpoint(engine.db, null, id, 'resume'); // probed at once
    await has(id, 'recovered');
    const told = about(id);
    expect(told.map(({ type }) => type.replace('posthaste.endpoint.', '')).sort()).toEqual([
      'closed',
      'failing',
      'opened',
      'recovered',
    ]);
    expect(new Set(told.map((event) => event.id)).size).toBe(4);
    const failing = told.find(({ type }) => type === 'posthaste.endpoint.failing')!;
    expect(failing.id).toMatch(/^ntc_\d+$/);
    expect(failing.data).toMatchObject({
      tenant: 'acme',
      host: `127.0.0.1:${receiver.port}`,
      last_status: 503,
      last_class: 'http_503',
    });
    // Good news names no failure: the last answer was a success.
    for (const type of ['closed', 'recovered']) {
      const { data } = told.find((event) => event.type === `posthaste.endpoint.${type}`)!;
      expect(Object.keys(data).filter((field) => field.startsWith('last_'))).toEqual([]);
    }
    expect(Date.parse(failing.data.next_probe_at as string)).toBeGreaterThan(
      Date.parse(failing.data.since as string),
    );
    expect(JSON.stringify(told)).not.toMatch(/s3cret|http:/);
    await receiver.close();
  });

  it('hears why an endpoint was disabled, and that it was enabled', async () => {
    await seedTenant(engine.db, 'moved');
    const receiver = await startReceiver({ respond: () => ({ status: 410 }) });
    const { id } = await seedEndpoint(engine.db, 'moved', { url: receiver.url });
    await engine.db.query(
      `update posthaste.tenants set notify_emails = '{owner@moved.example}' where id = 'moved'`,
    );
    await enqueueMany(engine.db, 'moved', 'a.b', 1);
    await has(id, 'disabled');
    await moveEndpoint(engine.db, 'moved', id, 'enable');
    await has(id, 'enabled');
    await moveEndpoint(engine.db, 'moved', id, 'disable', 'operator');
    await until(
      async () => about(id).length,
      (n) => n === 3,
    );
    expect(about(id).map(({ type, data }) => [type, data.disabled_reason])).toEqual([
      ['posthaste.endpoint.disabled', 'gone'],
      ['posthaste.endpoint.enabled', undefined],
      ['posthaste.endpoint.disabled', 'operator'],
    ]);
    const [mail] = await smtp.waitFor(1); // of the first: who disables by hand knows
    expect(mail).toMatchObject({ from: 'hooks@sender.example', to: ['owner@moved.example'] });
    expect(mail!.text).toContain('410 Gone');
    await receiver.close();
  });

  it('is not told of its own troubles', async () => {
    await moveEndpoint(engine.db, 'posthaste', operatorEndpoint, 'disable', 'operator');
    const notices = await engine.db.query(`select kind from posthaste.notices where endpoint = $1`, [
      operatorEndpoint,
    ]);
    expect(notices.rows).toEqual([{ kind: 'disabled' }]);
    const events = await engine.db.query(
      `select from posthaste.events where tenant = 'posthaste' and convert_from(body, 'UTF8') like '%' || $1 || '%'`,
      [operatorEndpoint],
    );
    expect(events.rowCount).toBe(0);
  });
});

it('what operators do is counted among the edges, once, by whatever way it came', async () => {
  const counted = await prepareEngine();
  const { url } = await counted.start(['api', 'relay', 'worker']);
  const edges = async (): Promise<Record<string, number>> => {
    const text = await (await fetch(`${url}/metrics`)).text();
    const lines = text.matchAll(/^posthaste_endpoint_edges_total\{edge="(\w+)",by="operator"\} (\d+)$/gm);
    return Object.fromEntries([...lines].map(([, edge, count]) => [edge, Number(count)]));
  };
  await seedTenant(counted.db, 'acme');
  const { id } = await seedEndpoint(counted.db, 'acme', { url: operators.url });
  const move = (to: string) =>
    fetch(`${url}/v1/tenants/acme/endpoints/${id}/${to}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
  await move('pause');
  await move('pause'); // it is: no edge
  await moveEndpoint(counted.db, null, id, 'resume'); // as from Temporal
  await move('disable');
  await move('enable');
  const all = await until(edges, ({ enabled }) => enabled !== undefined);
  expect(all).toEqual({ paused: 1, resumed: 1, disabled: 1, enabled: 1 });
});

it('a deleted operators’ tenant takes no events and holds up nobody’s health', async () => {
  await engine.db.query(`update posthaste.tenants set deleted_at = now() where id = 'posthaste'`);
  await seedTenant(engine.db, 'alone');
  const receiver = await startReceiver({ respond: () => ({ status: 410 }) });
  const { id } = await seedEndpoint(engine.db, 'alone', { url: receiver.url });
  await enqueueMany(engine.db, 'alone', 'a.b', 1);
  await until(
    async () =>
      (await engine.db.query('select state from posthaste.endpoints where id = $1', [id])).rows[0].state,
    (state) => state === 'disabled',
  );
  await receiver.close();
});
