/** The API killed 500 times. Three processes at a time, each on its own port, so that it fits into a few minutes. */
import { describe, it } from 'vitest';
import { killApi } from './api-kills.ts';

describe('the API killed right after each of 500 answers of 202', () => {
  it('has lost none of the events', async () => {
    await killApi({ kills: 500, lanes: 3 });
  }, 1_200_000);
});
