import { Webhook } from 'standardwebhooks';
import { afterEach, describe, expect, it } from 'vitest';
import { type DemoReceiver, startDemoReceiver } from '../../src/demo/receiver.ts';

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
let receiver: DemoReceiver;
afterEach(() => receiver.close());

function post(body: string, signed = body): Promise<Response> {
  const now = new Date();
  const headers = {
    'webhook-id': 'evt_1',
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': new Webhook(secret).sign('evt_1', now, signed),
  };
  return fetch(receiver.url, { method: 'POST', body, headers });
}

describe('the demo receiver', () => {
  it('says in one line which event came once its signature is verified', async () => {
    const lines: string[] = [];
    receiver = await startDemoReceiver({ log: { info: (line) => lines.push(line) } });
    receiver.useSecret(secret);
    const first = receiver.received('evt_1');
    expect((await post('{"type":"demo.hello"}')).status).toBe(204);
    expect(await first).toBe('demo.hello evt_1 · signature verified · 21 bytes');
    expect(lines).toEqual([await receiver.received()]);
  });

  it('refuses what was signed with other bytes', async () => {
    const lines: string[] = [];
    receiver = await startDemoReceiver({ secret, log: { info: (line) => lines.push(line) } });
    expect((await post('{"type":"x"}', '{"type":"y"}')).status).toBe(401);
    expect(lines).toEqual([expect.stringMatching(/^refused a request: no signature matches/)]);
  });
});
