/** Six kills of the API; api.heavy.test.ts has 500. */
import { describe, it } from 'vitest';
import { killApi } from './api-kills.ts';

describe('the API killed right after each of 6 answers of 202', () => {
  it('has lost none of the events', async () => {
    await killApi({ kills: 6, lanes: 2 });
  }, 90_000);
});
