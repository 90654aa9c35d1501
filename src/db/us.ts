/** What the question "is it us?" needs to know of all endpoints. Walks endpoint_state: only asked when many fail. */
import type { Db } from './pool.ts';

/** Endpoints of these shards that were sent to in the last minute. */
export async function countActive(db: Db, shards: readonly number[]): Promise<number> {
  const result = await db.query({
    name: 'count_active',
    text: `select count(*) as active from posthaste.endpoint_state where shard = any ($1) and send_rate_at > clock_timestamp() - interval '1 minute' and send_rate > 0`,
    values: [shards],
  });
  return result.rows[0].active;
}

/** URLs of endpoints, of whatever shard, that succeeded within the last hour and did not fail since; latest first. */
export async function knownGood(db: Db, failing: readonly string[], limit: number): Promise<string[]> {
  const result = await db.query({
    name: 'known_good',
    text: `select e.url from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint and e.state = 'active'
      where s.last_success_at > clock_timestamp() - interval '1 hour' and s.fails_in_row = 0 and s.endpoint <> all ($1)
      order by s.last_success_at desc limit $2`,
    values: [failing, limit],
  });
  return result.rows.map((row) => row.url);
}
