/** The check of our own network: what counts as reached, by the dial that deliveries use. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseEgressAllow } from '../../src/domain/addresses.ts';
import { createEgress, type Egress } from '../../src/egress/post.ts';
import { cleanUpLater } from '../support/clean-up.ts';
import { startReceiver, type TestReceiver } from '../support/receiver.ts';

let alive: TestReceiver;
let dead: string;
beforeAll(async () => {
  alive = await startReceiver();
  const other = await startReceiver();
  dead = other.url;
  await other.close();
});
afterAll(() => alive.close());

function egress(proxy?: string): Egress {
  const made = createEgress({ allow: parseEgressAllow('127.0.0.0/8:*'), proxy });
  cleanUpLater(() => made.close());
  return made;
}

describe('the self-check', () => {
  it('is fine when one of many targets can be reached, and sends it nothing', async () => {
    const targets = [...Array.from({ length: 6 }, () => dead), 'not a url', 'http://10.0.0.1/', alive.url];
    expect(await egress().check(targets)).toMatchObject({ verdict: 'fine', proxy: null });
    expect(alive.requests).toHaveLength(0);
  });

  it('takes a broken handshake for somebody who is there', async () => {
    expect(await egress().check([alive.url.replace('http:', 'https:')])).toMatchObject({ verdict: 'fine' });
  });

  it('says us when none can be reached, and unknown when there is none', async () => {
    expect(await egress().check([dead, dead])).toEqual({ verdict: 'us', tried: 2, proxy: null });
    expect(await egress().check([])).toEqual({ verdict: 'unknown', tried: 0, proxy: null });
  });

  it('says us when the proxy is away, whatever else there is', async () => {
    expect(await egress(dead).check([])).toMatchObject({ verdict: 'us', proxy: false });
    expect(await egress(dead).check([alive.url])).toMatchObject({ verdict: 'us', proxy: false });
  });
});
