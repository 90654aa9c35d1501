/** The path from an outbox row to the receiver, with real PostgreSQL, Temporal and sockets. */

import { Webhook } from 'standardwebhooks';
import { beforeAll, describe, expect, it } from 'vitest';
import { SECRET_PURPOSE } from '../../src/activities/prepare.ts';
import { touchEndpoint } from '../../src/db/endpoints.ts';
import { sealingAad } from '../../src/secrets.ts';
import { prepareEngine, type TestEngine, until } from '../support/engine.ts';
import { startReceiver } from '../support/receiver.ts';
import { enqueueMany, masterKeys, seedEndpoint, seedTenant } from '../support/seed.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await prepareEngine();
  await engine.start();
});

const finals = async (tenant: string) =>
  (await engine.db.query('select state, n from posthaste.deliveries where tenant = $1', [tenant])).rows as {
    state: string;
    n: number;
  }[];

describe('a delivery', () => {
  it('arrives once, signed so that the published library verifies it', async () => {
    await seedTenant(engine.db, 'once');
    const receiver = await startReceiver();
    const { secret } = await seedEndpoint(engine.db, 'once', { url: receiver.url });
    const [id] = (
      await engine.db.query(
        `select posthaste.enqueue('once', 'invoice.paid', '{"n": 12345678901234567890,  "a":1,"a":2}', version => 7)`,
      )
    ).rows.map((r) => r.enqueue);
    await receiver.waitFor(1);
    const request = receiver.requests[0]!;
    const text = request.body.toString();
    expect(new Webhook(secret).verify(text, request.headers as Record<string, string>)).toMatchObject({
      id,
      type: 'invoice.paid',
      version: 7,
      sequence: 1,
    });
    expect(text.endsWith(',"data":{"n": 12345678901234567890,  "a":1,"a":2}}')).toBe(true);
    expect(request.headers['webhook-id']).toBe(id);
    expect(
      await until(
        () => finals('once'),
        (rows) => rows.length === 1,
      ),
    ).toEqual([{ state: 'delivered', n: 1 }]);
    expect(receiver.requests).toHaveLength(1);
    await receiver.close();
  });

  it('is tried again until the receiver is up', async () => {
    await seedTenant(engine.db, 'down');
    const receiver = await startReceiver({ respond: (_request, n) => ({ status: n < 3 ? 503 : 200 }) });
    await seedEndpoint(engine.db, 'down', {
      url: receiver.url,
      policy: { schedule: ['20ms', '40ms', '60ms', '100ms'] },
    });
    await enqueueMany(engine.db, 'down', 'a.b', 1);
    await receiver.waitFor(4);
    expect(
      await until(
        () => finals('down'),
        (rows) => rows.length === 1,
      ),
    ).toEqual([{ state: 'delivered', n: 4 }]);
    const attempts = await engine.db.query(
      `select n, status, decision from posthaste.attempts where tenant = 'down' order by n`,
    );
    expect(attempts.rows).toEqual([
      { n: 1, status: 503, decision: 'retrying' },
      { n: 2, status: 503, decision: 'retrying' },
      { n: 3, status: 503, decision: 'retrying' },
      { n: 4, status: 200, decision: 'delivered' },
    ]);
    await receiver.close();
  });
});

describe('many deliveries', () => {
  it('all arrive exactly once, in groups', async () => {
    const receiver = await startReceiver();
    for (let t = 0; t < 5; t++) {
      await seedTenant(engine.db, `many${t}`);
      for (let e = 0; e < 4; e++)
        await seedEndpoint(engine.db, `many${t}`, { url: `${receiver.url}/${t}/${e}` });
    }
    await Promise.all(Array.from({ length: 5 }, (_, t) => enqueueMany(engine.db, `many${t}`, 'a.b', 100)));
    await receiver.waitFor(2_000);
    await until(
      async () =>
        (
          await engine.db.query(
            `select count(*) as c from posthaste.deliveries where tenant like 'many%' and state = 'delivered' and n = 1`,
          )
        ).rows[0].c,
      (c) => c === 2_000,
    );
    expect(receiver.requests).toHaveLength(2_000);
    expect(new Set(receiver.requests.map((r) => `${r.path} ${r.headers['webhook-id']}`)).size).toBe(2_000);
    await receiver.close();
  });
});

describe('the request', () => {
  it('carries custom headers that the log shows by length only, and a traceparent for those who asked', async () => {
    await seedTenant(engine.db, 'headers');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'headers', {
      url: receiver.url,
      headers: { Authorization: 'Bearer s3cret' },
    });
    await engine.db.query('update posthaste.endpoints set traceparent = true where id = $1', [id]);
    await engine.db.query(
      `select posthaste.enqueue_raw('headers', 'a.b', 'plain \\000 text', 'text/plain; charset=utf-8')`,
    );
    const [request] = await receiver.waitFor(1);
    expect(request!.headers.authorization).toBe('Bearer s3cret');
    expect(request!.headers.traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(request!.headers['content-type']).toBe('text/plain; charset=utf-8');
    expect(request!.body).toEqual(Buffer.from('plain \0 text'));
    const read = async () =>
      (await engine.db.query(`select request_headers from posthaste.attempts where tenant = 'headers'`))
        .rows[0];
    const row = await until(read, (r) => r !== undefined);
    expect(row.request_headers).not.toContain('s3cret');
    expect(JSON.parse(row.request_headers)).toContainEqual(['authorization', '[13 characters]']);
    await receiver.close();
  });

  it('is signed with the secret of the moment: a new one counts from the next attempt on', async () => {
    await seedTenant(engine.db, 'rotated');
    const receiver = await startReceiver();
    const { id } = await seedEndpoint(engine.db, 'rotated', { url: receiver.url });
    await enqueueMany(engine.db, 'rotated', 'a.b', 1);
    await receiver.waitFor(1);
    await engine.db.query('delete from posthaste.endpoint_secrets where endpoint = $1', [id]);
    const secret = `whsec_${Buffer.alloc(24, 5).toString('base64')}`;
    await engine.db.query(
      `insert into posthaste.endpoint_secrets (id, endpoint, tenant, kind, key_id, sealed) values ('sec_x', $1, 'rotated', 'hmac', 't1', $2)`,
      [id, masterKeys.seal(Buffer.from(secret), sealingAad(SECRET_PURPOSE, 'rotated', id, 'sec_x'))],
    );
    await touchEndpoint(engine.db, id);
    await enqueueMany(engine.db, 'rotated', 'a.b', 1, 1);
    const [, second] = await receiver.waitFor(2);
    expect(() => new Webhook(secret).verify(second!.body.toString(), second!.headers)).not.toThrow();
    await receiver.close();
  });
});
