/** Test sends (migrations/functions/tests.sql). */
import type { Db } from './pool.ts';

export type MadeTest =
  | { outcome: 'made'; delivery: string; event: string; at: Date; timeout_ms: number }
  | { outcome: 'busy' | 'no_tenant' | 'no_endpoint' };

/** @param slackMs how long after the endpoint's own time limit it may still begin. */
export async function makeTest(
  db: Db,
  test: { tenant: string; endpoint: string; type: string; body: Buffer; slackMs: number },
): Promise<MadeTest> {
  const result = await db.query({
    name: 'test_send',
    text: `select * from posthaste.test_send($1, $2, $3, $4, $5 * interval '1 millisecond')`,
    values: [test.tenant, test.endpoint, test.type, test.body, test.slackMs],
  });
  return result.rows[0];
}
