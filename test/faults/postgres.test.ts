/** PostgreSQL away for five seconds while workers hold answers; postgres.heavy.test.ts stays away for longer. */
import { describe, it } from 'vitest';
import { outageWithHeldAnswers } from './outage.ts';

describe('PostgreSQL away for 5 s while workers hold answers', () => {
  it('costs nothing: they are recorded on its return and not sent again', async () => {
    await outageWithHeldAnswers({ awayMs: 5_000, how: 'fast' });
  }, 90_000);
});
