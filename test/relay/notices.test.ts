/** Mail about endpoints' health, against a real SMTP server: who gets it, once each, whatever breaks in between. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { createLog } from '../../src/log.ts';
import { createMail } from '../../src/mail.ts';
import type { Leases } from '../../src/relay/leases.ts';
import { startNotices } from '../../src/relay/notices.ts';
import { until } from '../support/engine.ts';
import { createDatabase } from '../support/postgres.ts';
import { seedEndpoint, seedTenant } from '../support/seed.ts';
import { startSmtp, type TestSmtp } from '../support/smtp.ts';

const leases = {
  held: () => Array.from({ length: 16 }, (_, shard) => ({ shard, epoch: 1 })),
  valid: () => true,
} as unknown as Leases;
const log = createLog({ level: 'silent' });

let db: Pool;
let smtp: TestSmtp;
let tenant: string;
let endpoint: string;
let count = 0;
const running: { stop(): Promise<void> }[] = [];

beforeAll(async () => {
  db = createPool((await createDatabase()).url);
});
afterAll(() => db.end());
beforeEach(async () => {
  smtp = await startSmtp();
  tenant = `mail${++count}`;
  await seedTenant(db, tenant);
  endpoint = (
    await seedEndpoint(db, tenant, { url: 'https://Hooks.shop.example:8443/secret-path?token=s3cret' })
  ).id;
  await people(['both@shop.example', 'tenant@shop.example'], ['both@shop.example', 'endpoint@shop.example']);
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((chore) => chore.stop()));
  await db.query('truncate posthaste.notices');
});

const people = async (ofTenant: string[], ofEndpoint: string[]): Promise<void> => {
  await db.query('update posthaste.tenants set notify_emails = $2 where id = $1', [tenant, ofTenant]);
  await db.query('update posthaste.endpoints set notify_emails = $2 where id = $1', [endpoint, ofEndpoint]);
};

function mailing(pool: Pool = db, url = smtp.url): void {
  const mail = createMail(url, 'Webhooks <hooks@sender.example>');
  running.push(startNotices({ db: pool, leases, log, send: mail.send }));
}

const edge = async (kind: string, facts: object = {}): Promise<number> =>
  (
    await db.query(
      'insert into posthaste.notices (endpoint, tenant, shard, kind, facts) values ($1, $2, 3, $3, $4) returning id',
      [endpoint, tenant, kind, JSON.stringify({ reason: 'no success in 24 hours', held: 0, ...facts })],
    )
  ).rows[0].id;
const row = async (id: number) =>
  (
    await db.query(
      `select sent_to, refused, tries, due_at = 'infinity' as done, due_at > now() as later from posthaste.notices where id = $1`,
      [id],
    )
  ).rows[0];
const dueNow = (id: number) => db.query('update posthaste.notices set due_at = now() where id = $1', [id]);
const done = (id: number) =>
  until(
    () => row(id),
    (r) => r.done,
  );
const addressees = (): string[] => smtp.mails.flatMap((mail) => mail.to).sort();
const header = (index: number, name: string): string[] =>
  smtp.mails[index]!.headers.filter(([key]) => key === name).map(([, value]) => value);

describe('mail of an edge', () => {
  it('goes to each address of tenant and endpoint once, as text and as HTML, without saying the path', async () => {
    const id = await edge('notice_24h', {
      lastStatus: 503,
      lastClass: 'http_5xx',
      sinceMs: Date.UTC(2026, 0, 1),
      held: 12,
    });
    mailing();
    expect(await done(id)).toMatchObject({ refused: [] });
    expect(addressees()).toEqual(['both@shop.example', 'endpoint@shop.example', 'tenant@shop.example']);
    const [mail] = smtp.mails;
    expect(mail!.from).toBe('hooks@sender.example');
    expect(header(0, 'subject')).toEqual([
      'Webhook endpoint hooks.shop.example:8443 has been failing for a day',
    ]);
    expect(header(0, 'from')).toEqual(['Webhooks <hooks@sender.example>']);
    expect(header(0, 'auto-submitted')).toEqual(['auto-generated']);
    for (const part of [mail!.text, mail!.html]) {
      expect(part).toContain(endpoint);
      expect(part).toContain('503 http_5xx');
      expect(part).toContain('2026-01-01T00:00:00.000Z');
      expect(part).toContain('12');
      expect(part).not.toMatch(/s3cret|secret-path|href|https?:/);
    }
    await dueNow(id); // a second owner, or one that forgot
    await done(id);
    expect(smtp.mails).toHaveLength(3);
  });

  it('that says who is who can neither add a header nor leave its place in the HTML', async () => {
    await db.query('update posthaste.tenants set name = $2 where id = $1', [
      tenant,
      'Evil\r\nBcc: victim@shop.example\r\n\r\n<script>alert(1)</script>\u202e"\'&',
    ]);
    await db.query('update posthaste.endpoints set url = $2 where id = $1', [
      endpoint,
      'https://evil.example\r\nBcc:victim@shop.example<img src=x>/p',
    ]);
    await people(['only@shop.example'], []);
    const id = await edge('misconfigured', { reason: '<b>\r\nx', lastClass: '"><i>\n' });
    mailing();
    await done(id);
    const [mail] = smtp.mails;
    expect(mail!.to).toEqual(['only@shop.example']);
    expect(header(0, 'bcc')).toEqual([]);
    expect(header(0, 'to')).toEqual(['only@shop.example']);
    expect(header(0, 'subject')[0]).not.toContain('\n');
    expect(mail!.html).not.toMatch(/<script|<img|<b>|<i>/);
    expect(mail!.html).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(mail!.text).not.toContain('\u202e');
  });

  it('is made for what people must act on, and tells of recovery only those who heard of trouble', async () => {
    const mailed = async (kind: string, facts: object = {}): Promise<boolean> =>
      !(await row(await edge(kind, facts))).done;
    expect(await mailed('failing')).toBe(false);
    expect(await mailed('opened')).toBe(false);
    expect(await mailed('closed')).toBe(false);
    expect(await mailed('recovered')).toBe(false);
    expect(await mailed('notice_24h')).toBe(true);
    expect(await mailed('recovered')).toBe(true);
    expect(await mailed('recovered')).toBe(false);
    expect(await mailed('notice_72h')).toBe(true);
    expect(await mailed('disabled', { disabledReason: 'failing' })).toBe(true);
    expect(await mailed('disabled', { disabledReason: 'operator' })).toBe(false);
    expect(await mailed('enabled')).toBe(false);
    expect(await mailed('recovered')).toBe(false);
    expect(await mailed('misconfigured')).toBe(true);
    expect(await mailed('paused_long')).toBe(true);
  });
});

describe('when something breaks', () => {
  it('a crash between sending and remembering repeats one mail at most, with the same Message-ID', async () => {
    const id = await edge('disabled', { disabledReason: 'gone' });
    let broken = false;
    const dying = {
      query(...args: unknown[]) {
        if ((args[0] as { name?: string }).name === 'mark_notice_sent') broken = true;
        if (broken) return Promise.reject(new Error('the process is gone'));
        return (db.query as (...all: unknown[]) => unknown).apply(db, args);
      },
    } as unknown as Pool;
    mailing(dying);
    await smtp.waitFor(1);
    await until(
      async () => broken,
      (b) => b,
    );
    await running.pop()!.stop();
    expect(await row(id)).toMatchObject({ sent_to: [], later: true }); // promised for a while yet
    mailing();
    await dueNow(id); // the promise runs out
    await done(id);
    expect(addressees()).toEqual([
      'both@shop.example',
      'both@shop.example',
      'endpoint@shop.example',
      'tenant@shop.example',
    ]);
    const ids = smtp.mails
      .filter(({ to }) => to[0] === 'both@shop.example')
      .map(({ headers }) => headers.find(([n]) => n === 'message-id')![1]);
    expect(new Set(ids).size).toBe(1);
  });

  it('mail waits while the server is down, and goes out when it is back', async () => {
    const { port, url } = smtp;
    await smtp.close();
    const id = await edge('notice_72h');
    mailing(db, url);
    const waiting = await until(
      () => row(id),
      (r) => r.tries === 1 && r.sent_to.length === 0 && r.later,
    );
    expect(waiting.done).toBe(false);
    smtp = await startSmtp(port);
    await until(
      async () => {
        await dueNow(id);
        return row(id);
      },
      (r) => r.sent_to.length === 3,
    );
    await done(id);
    expect(addressees()).toHaveLength(3);
  });

  it('an address the server refuses for good is left out, one refused for now is tried again, others wait for neither', async () => {
    await people(['a-refused@shop.example', 'b-later@shop.example'], ['c-fine@shop.example']);
    smtp.refuse((address) => (address.startsWith('a') ? 550 : address.startsWith('b') ? 451 : null));
    const id = await edge('notice_24h');
    mailing();
    const first = await until(
      () => row(id),
      (r) => r.sent_to.length === 1 && r.refused.length === 1,
    );
    expect(first).toMatchObject({
      sent_to: ['c-fine@shop.example'],
      refused: ['a-refused@shop.example'],
      done: false,
    });
    smtp.refuse(() => null);
    await until(
      async () => {
        await dueNow(id);
        return row(id);
      },
      (r) => r.sent_to.length === 2,
    );
    await done(id);
    expect(addressees()).toEqual(['b-later@shop.example', 'c-fine@shop.example']);
  });

  it('nobody is written to about an endpoint that is deleted meanwhile', async () => {
    const id = await edge('notice_24h');
    await db.query(`update posthaste.endpoints set state = 'deleted' where id = $1`, [endpoint]);
    mailing();
    expect(await done(id)).toMatchObject({ sent_to: [] });
    expect(smtp.mails).toEqual([]);
  });

  it('mail older than a day is not sent any more', async () => {
    const id = await edge('notice_24h');
    await db.query(`update posthaste.notices set at = now() - interval '25 hours' where id = $1`, [id]);
    mailing();
    expect(await done(id)).toMatchObject({ sent_to: [] });
    expect(smtp.mails).toEqual([]);
  });
});
