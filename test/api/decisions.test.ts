/** Why each attempt was followed by what followed, and what is still to come, as the API shows it. */
import { describe, expect, test } from 'vitest';
import { reap, record } from '../../src/db/verbs.ts';
import { claim } from '../support/claim.ts';
import { DEAD, maker, RETRYING, recordOf } from './made.ts';
import { rig } from './support.ts';

const api = rig();
const { attempt, setUp } = maker(api);

describe('what is still to come', () => {
  test('is shown of an unfinished delivery, in times and in words, and is nothing for an ended one', async () => {
    const { endpoint, deliveries, path } = await setUp(3);
    const [waiting, sending, done] = deliveries as [string, string, string];
    const due = new Date(Date.now() + 120_000).toISOString();
    await attempt(endpoint, [waiting], { ...RETRYING, due_at: Date.parse(due), step: 1, rule: 'schedule' });
    const { json } = await api.call('GET', `${path}/${waiting}`);
    expect(json).toMatchObject({
      next_attempt_at: due,
      next_attempt_earliest: due,
      next_attempt_latest: due,
      gives_up_at: json.deadline,
      outlook: expect.stringMatching(
        /^Attempt 2 \w+day .* UTC; gives up \w+day .* UTC, or after 29 more attempts\.$/,
      ),
    });
    await claim(api.db, [{ delivery: sending, generation: 1, n: 0 }]);
    const under = (await api.call('GET', `${path}/${sending}`)).json;
    expect(under).toMatchObject({
      state: 'sending',
      next_attempt_at: null,
      outlook: expect.stringMatching(/^Attempt 1 is under way; if it fails, attempt 2 between /),
    });
    // 15 to 30 s after the failure, which comes within the time-out of 15 s.
    expect(Date.parse(under.next_attempt_latest) - Date.parse(under.next_attempt_earliest)).toBe(30_000);
    await attempt(endpoint, [done]);
    expect((await api.call('GET', `${path}/${done}`)).json).toMatchObject({
      next_attempt_at: null,
      next_attempt_earliest: null,
      next_attempt_latest: null,
      gives_up_at: null,
      outlook: null,
    });
    // Its next attempt would come after the deadline: none is promised.
    await api.db.query('update posthaste.work set due_at = deadline where delivery = $1', [waiting]);
    expect((await api.call('GET', `${path}/${waiting}`)).json).toMatchObject({
      next_attempt_at: null,
      gives_up_at: json.deadline,
      outlook: expect.stringMatching(/^No further attempt by itself; gives up /),
    });
  });
});

describe('what a delivery waits for', () => {
  test('is said while its endpoint is paused, fails, or gets what waits in turn, and no time is promised', async () => {
    const { tenant, endpoint, deliveries, path } = await setUp(2);
    const [held, later] = deliveries as [string, string];
    const due = new Date(Date.now() + 120_000).toISOString();
    await attempt(endpoint, [later], { ...RETRYING, due_at: Date.parse(due), step: 1, rule: 'schedule' });
    await api.call('POST', `/v1/tenants/${tenant}/endpoints/${endpoint}/pause`);
    const shown = async (delivery: string) => (await api.call('GET', `${path}/${delivery}`)).json;
    expect(await shown(later)).toMatchObject({
      state: 'retrying',
      next_attempt_at: null,
      next_attempt_earliest: due,
      next_attempt_latest: null,
      outlook: expect.stringMatching(
        /^Attempt 2, .* at the earliest, waits for its endpoint, which is paused until someone resumes it; gives up /,
      ),
    });
    await claim(api.db, [{ delivery: held, generation: 1, n: 0 }]); // refused: the endpoint is in mode pump
    const nothing = {
      state: 'held',
      next_attempt_at: null,
      next_attempt_earliest: null,
      next_attempt_latest: null,
    };
    const waits = (which: string) => expect.stringContaining(`Waits for its endpoint, which ${which}`);
    expect(await shown(held)).toMatchObject({
      ...nothing,
      outlook: waits('is paused until someone resumes it;'),
    });
    const stands = (change: string) =>
      api.db.query(`update posthaste.endpoint_state set ${change} where endpoint = $1`, [endpoint]);
    await api.call('POST', `/v1/tenants/${tenant}/endpoints/${endpoint}/resume`);
    expect(await shown(held)).toMatchObject({ ...nothing, outlook: waits('takes no more at a time') });
    await stands(`health = 'open', probe_at = '2999-01-01T12:00:00Z'`);
    expect(await shown(held)).toMatchObject({
      ...nothing,
      outlook: waits('fails and is tried again Tuesday 1 Jan 12:00:00 UTC with one delivery;'),
    });
    await stands(`health = 'half_open', probe_at = 'infinity'`);
    expect(await shown(held)).toMatchObject({
      ...nothing,
      outlook: waits('fails and is being tried with one delivery;'),
    });
  });
});

describe('the log tells why', () => {
  test('each attempt shows its rule, what the schedule and the receiver said, and a sentence', async () => {
    const { endpoint, deliveries, path } = await setUp(1);
    const [delivery] = deliveries as [string];
    const own = new Date(Date.now() - 2_000).toISOString();
    const due = new Date(Date.now() - 1_000).toISOString();
    await attempt(endpoint, [delivery], {
      ...RETRYING,
      due_at: Date.parse(due),
      rule: 'retry_after',
      own_due_at: Date.parse(own),
      retry_after_s: 120,
    });
    await attempt(endpoint, [delivery], {
      ...RETRYING,
      due_at: Date.parse(due),
      rule: 'deadline',
      own_due_at: Date.parse(own),
    });
    await attempt(endpoint, [delivery], { ...DEAD, rule: 'max_attempts' });
    const [asked, late, last] = (await api.call('GET', `${path}/${delivery}/attempts`)).json.data;
    expect(asked).toMatchObject({
      decision: 'retrying',
      rule: 'retry_after',
      own_next_attempt_at: own,
      next_attempt_at: due,
      retry_after_seconds: 120,
      why: expect.stringMatching(
        /^The receiver asked for more time .*; Retry-After asked for 120 s; its own schedule said .* UTC; next attempt .* UTC\.$/,
      ),
    });
    expect(late).toMatchObject({ rule: 'deadline', next_attempt_at: null });
    expect(last).toMatchObject({
      decision: 'dead',
      rule: 'max_attempts',
      own_next_attempt_at: null,
      next_attempt_at: null,
      retry_after_seconds: null,
      why: 'All attempts are used up.',
    });
  });

  test('says what Retry-After asked for beyond the day that counts, and when it was not understood', async () => {
    const { endpoint, deliveries, path } = await setUp(1);
    const [delivery] = deliveries as [string];
    const started = Date.now() - 500;
    const said = (value: string, counted: number | null) =>
      attempt(endpoint, [delivery], {
        ...RETRYING,
        started_at: started,
        duration_ms: 0,
        due_at: Date.now() - 1,
        rule: counted === null ? 'schedule' : 'retry_after',
        retry_after_s: counted,
        response_headers: JSON.stringify([['retry-after', value]]),
      });
    await said('604800', 86_400);
    await said(new Date(Math.ceil(started / 1_000) * 1_000 + 604_800_000).toUTCString(), 86_400);
    await said('86400', 86_400);
    await said('9'.repeat(400), 86_400);
    await said('soon', null);
    const shown = (await api.call('GET', `${path}/${delivery}/attempts`)).json.data;
    const [week, date, day, ever, soon] = shown.map(({ why }: { why: string }) => why);
    expect(shown[0].retry_after_seconds).toBe(86_400);
    expect(week).toContain('; Retry-After asked for 604800 s, of which 1 d is the most that counts;');
    expect(date).toMatch(/; Retry-After asked for 60480[01] s, of which 1 d is the most that counts;/);
    expect(day).toContain('; Retry-After asked for 86400 s;');
    expect(ever).toContain('; Retry-After asked for longer than can be counted, of which 1 d');
    expect(soon).toContain(
      'The next step of the schedule; its Retry-After was ignored: it is neither seconds nor a date;',
    );
  });

  test('also of an attempt that was cancelled or disabled under way, and of one whose worker was lost', async () => {
    const { tenant, endpoint, deliveries, path } = await setUp(3);
    const [cancelled, lost, disabled] = deliveries as [string, string, string];
    const one = async (delivery: string) =>
      (await api.call('GET', `${path}/${delivery}/attempts`)).json.data[0];
    const meanwhile = async (delivery: string, act: () => Promise<unknown>) => {
      const [claimed] = await claim(api.db, [{ delivery, generation: 1, n: 0 }]);
      await act();
      await record(api.db, [
        { ...recordOf(endpoint, claimed!), ...RETRYING, due_at: Date.now(), rule: 'schedule' },
      ]);
    };
    await meanwhile(cancelled, () => api.call('POST', `${path}/${cancelled}/cancel`));
    expect(await one(cancelled)).toMatchObject({
      decision: 'cancelled',
      rule: 'requested',
      next_attempt_at: null,
      why: 'It was cancelled while the attempt was under way.',
    });
    await claim(api.db, [{ delivery: lost, generation: 1, n: 0 }]);
    await api.db.query(
      `update posthaste.work set claim_until = now() - interval '1 minute', scan_at = now() where delivery = $1`,
      [lost],
    );
    await reap(
      api.db,
      Array.from({ length: 16 }, (_, i) => i),
      1_000,
      10,
    );
    expect(await one(lost)).toMatchObject({
      decision: 'unknown',
      class: 'worker_lost',
      rule: 'worker_lost',
      next_attempt_at: expect.any(String),
      why: expect.stringContaining('The worker vanished'),
    });
    const endpoints = `/v1/tenants/${tenant}/endpoints`;
    await meanwhile(disabled, () => api.call('POST', `${endpoints}/${endpoint}/disable`));
    expect(await one(disabled)).toMatchObject({ decision: 'cancelled', rule: 'endpoint_disabled' });
  });
});
