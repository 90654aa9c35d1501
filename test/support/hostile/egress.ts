/** An egress that may reach loopback, and a short way to post with it. */
import { parseEgressAllow } from '../../../src/domain/addresses.ts';
import type { Egress, EgressOptions, PostInput, PostResult } from '../../../src/egress/post.ts';
import { createEgress } from '../../../src/egress/post.ts';

/** An egress with a shorthand; `await using` closes it. */
export interface TestEgress extends AsyncDisposable {
  readonly egress: Egress;
  send(url: string, input?: Partial<PostInput>): Promise<PostResult>;
}

/** @param options override what is needed; loopback on every port is allowed. */
export function testEgress(options: Partial<EgressOptions> = {}): TestEgress {
  const egress = createEgress({ allow: parseEgressAllow('127.0.0.0/8:*'), ...options });
  return {
    egress,
    send: (url, input) =>
      egress.post({
        url,
        tenant: 'acme',
        endpoint: 'ep_1',
        revision: 1,
        headers: [
          ['user-agent', 'Posthaste'],
          ['content-type', 'application/json'],
          ['webhook-id', 'evt_1'],
        ],
        body: Buffer.from('{"hello":"world"}'),
        timeoutMs: 5_000,
        connections: 5,
        ...input,
      }),
    [Symbol.asyncDispose]: () => egress.close(),
  };
}
