/**
 * Mail about endpoints' health, sent by the owner of their shards. The edges are rows (migrations/functions/notices.sql);
 * a row remembers whom it was sent to, address by address, so that a crash between sending and remembering repeats one
 * mail at most (with the same Message-ID), and an address that fails holds up nobody else's.
 * Called by src/engine.ts, when there is a mail server. Without one rows grow too old to be sent, which is a day.
 */
import { createHash } from 'node:crypto';
import { type DueNotice, markNotice, settleNotice, takeNotices } from '../db/notices.ts';
import type { Pool } from '../db/pool.ts';
import { type Mail, noticeMail } from '../domain/notice-mail.ts';
import type { Log } from '../log.ts';
import type { Leases } from './leases.ts';

/** `refused`: the address is wrong for good. Throws when it is to be tried again. */
export type SendMail = (to: string, id: string, mail: Mail) => Promise<'sent' | 'refused'>;

export interface NoticesOptions {
  db: Pool;
  leases: Leases;
  log: Log;
  send: SendMail;
}

const EVERY_MS = 2_000;
/** Longer than one mail takes, time limits included; renewed with each. */
const LEASE_MS = 120_000;
const GIVE_UP_MS = 24 * 3_600_000;
const STOP_MS = 5_000;
const PARALLEL = 5;
const RETRY_MS = 30_000;
const RETRY_CAP_MS = 30 * 60_000;

/** 30 s, doubling, at most half an hour: until the mail is a day old. */
export const retryAfterMs = (tries: number): number =>
  Math.min(RETRY_CAP_MS, RETRY_MS * 2 ** Math.min(20, Math.max(0, tries - 1)));

export function startNotices(options: NoticesOptions): { stop(): Promise<void> } {
  const { db, leases, log, send } = options;
  let stopping = false;
  let running: Promise<void> | null = null;

  const deliver = async (notice: DueNotice): Promise<void> => {
    const { id, endpoint, kind } = notice;
    if (notice.expired) {
      log.error(
        { notice: id, endpoint, kind },
        'mail about an endpoint could not be sent for a day; given up',
      );
      return;
    }
    const mail = noticeMail(factsOf(notice));
    let failed = 0;
    for (const address of notice.addresses) {
      if (stopping) return; // its lease runs out, and it is taken up again
      const how = await send(address, mailId(id, address), mail).catch((error: unknown) => {
        log.warn(
          { err: error, notice: id, endpoint, tries: notice.tries },
          'a mail was not taken; tried again',
        );
        return 'failed' as const;
      });
      if (how === 'failed') failed++;
      else await markNotice(db, id, address, how, LEASE_MS);
      if (how === 'refused')
        log.warn({ notice: id, endpoint, address }, 'the mail server refuses this address; it gets no mail');
    }
    await settleNotice(db, id, failed === 0 ? null : retryAfterMs(notice.tries));
  };

  const round = async (): Promise<void> => {
    for (;;) {
      const shards = leases.held().map((lease) => lease.shard);
      if (stopping || shards.length === 0 || !leases.valid()) return;
      const due = await takeNotices(db, shards, LEASE_MS, GIVE_UP_MS, PARALLEL);
      await Promise.all(due.map(deliver));
      if (due.length < PARALLEL) return;
    }
  };

  const tick = (): void => {
    running ??= round()
      .catch((error: unknown) => log.warn({ err: error }, 'mail about endpoints waits; tried again'))
      .finally(() => {
        running = null;
      });
  };
  tick();
  const timer = setInterval(tick, EVERY_MS);
  return {
    async stop() {
      stopping = true;
      clearInterval(timer);
      // A mail under way may hang at the server; unfinished, it is as after a crash.
      await Promise.race([running, new Promise((resolve) => setTimeout(resolve, STOP_MS).unref())]);
    },
  };
}

/** The same for each try, so that a repeated mail can be told by its Message-ID. */
const mailId = (id: number, address: string): string =>
  `ntc-${id}-${createHash('sha256').update(address).digest('hex').slice(0, 16)}`;

function factsOf(notice: DueNotice) {
  const { facts } = notice;
  const iso = (ms: number | null | undefined): string | null =>
    typeof ms === 'number' ? new Date(ms).toISOString() : null;
  return {
    kind: notice.kind,
    endpoint: notice.endpoint,
    tenant: notice.tenant,
    tenantName: notice.tenant_name,
    host: facts.host ?? 'unknown',
    at: notice.at.toISOString(),
    reason: facts.reason ?? '',
    disabledReason: facts.disabledReason ?? null,
    since: iso(facts.sinceMs),
    until: iso(facts.untilMs),
    lastStatus: facts.lastStatus ?? null,
    lastClass: facts.lastClass ?? null,
    held: facts.held ?? 0,
  };
}
