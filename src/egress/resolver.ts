/**
 * DNS for outgoing requests: A and AAAA queries straight to the name servers (c-ares), never getaddrinfo, whose
 * few pool threads a handful of dead name servers would block, and which reads search domains and host files.
 * Raw answers are cached and judged again at every dial. Called by dial.ts. Times are milliseconds, TTLs seconds.
 */
import type { RecordWithTtl } from 'node:dns';
import { Resolver } from 'node:dns';
import { LRUCache } from 'lru-cache';

/** All addresses of a name, IPv4 first, or the code of the failure (ENOTFOUND, ETIMEOUT, ESERVFAIL …). */
export type DnsAnswer =
  | { readonly ok: true; readonly addresses: readonly string[] }
  | { readonly ok: false; readonly code: string };

/** A caching, single-flight resolver. */
export interface DnsResolver {
  resolve(name: string): Promise<DnsAnswer>;
  close(): void;
  stats(): { cached: number; queries: number };
}

// c-ares: two tries of 500 ms took about 2.0 s in all (measured), so the whole is cut at 2.5 s.
const TRY_MS = 500;
const TRIES = 2;
const TOTAL_MS = 2_500;
/** Once one family has answered, the other may take this much longer. */
const OTHER_FAMILY_MS = 300;
const MAX_TTL_S = 30;
const NOT_FOUND_TTL_S = 5;
const FAILURE_TTL_S = 1;
const MAX_NAMES = 10_000;
const PER_FAMILY = 4;

// RFC 6761 section 6.3: localhost is loopback and never a query. It still needs an exception to be dialled.
const LOCALHOST: DnsAnswer = { ok: true, addresses: ['127.0.0.1'] };

type Family = { readonly records: readonly RecordWithTtl[]; readonly code: string | null };

/** @param servers `address[:port]` of name servers; undefined means those of the system. */
export function createResolver(servers: readonly string[] | undefined): DnsResolver {
  const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES, maxTimeout: 2 * TRY_MS });
  if (servers) resolver.setServers(servers);
  const cache = new LRUCache<string, DnsAnswer>({ max: MAX_NAMES });
  const running = new Map<string, Promise<DnsAnswer>>();
  let queries = 0;

  function query(name: string): Promise<DnsAnswer> {
    queries++;
    return new Promise((resolve) => {
      let v4: Family | undefined;
      let v6: Family | undefined;
      let timer = setTimeout(finish, TOTAL_MS);
      function finish(): void {
        clearTimeout(timer);
        const { answer, ttlSeconds } = combine(v4, v6);
        if (ttlSeconds > 0) cache.set(name, answer, { ttl: ttlSeconds * 1000 });
        running.delete(name);
        resolve(answer);
      }
      function arrived(): void {
        if (v4 && v6) {
          finish();
        } else if ((v4 ?? v6)?.records.length) {
          clearTimeout(timer);
          timer = setTimeout(finish, OTHER_FAMILY_MS);
        }
      }
      resolver.resolve4(name, { ttl: true }, (error, records) => {
        v4 ??= family(error, records);
        if (running.has(name)) arrived();
      });
      resolver.resolve6(name, { ttl: true }, (error, records) => {
        v6 ??= family(error, records);
        if (running.has(name)) arrived();
      });
    });
  }

  return {
    resolve(name) {
      if (name === 'localhost') return Promise.resolve(LOCALHOST);
      const known = cache.get(name);
      if (known) return Promise.resolve(known);
      let pending = running.get(name);
      if (!pending) {
        pending = query(name);
        running.set(name, pending);
      }
      return pending;
    },
    close: () => resolver.cancel(),
    stats: () => ({ cached: cache.size, queries }),
  };
}

function family(error: NodeJS.ErrnoException | null, records: RecordWithTtl[] | undefined): Family {
  return { records: (error ? undefined : records) ?? [], code: error ? (error.code ?? 'ESERVFAIL') : null };
}

function combine(v4: Family | undefined, v6: Family | undefined): { answer: DnsAnswer; ttlSeconds: number } {
  const records = [...(v4?.records.slice(0, PER_FAMILY) ?? []), ...(v6?.records.slice(0, PER_FAMILY) ?? [])];
  if (records.length > 0) {
    const ttl = Math.min(MAX_TTL_S, ...records.map((record) => record.ttl));
    return {
      answer: { ok: true, addresses: records.map((record) => record.address) },
      ttlSeconds: ttl,
    };
  }
  const codes = [v4?.code ?? 'ETIMEOUT', v6?.code ?? 'ETIMEOUT'];
  const temporary = codes.find((code) => code !== 'ENOTFOUND' && code !== 'ENODATA');
  if (temporary) return { answer: { ok: false, code: temporary }, ttlSeconds: FAILURE_TTL_S };
  return { answer: { ok: false, code: 'ENOTFOUND' }, ttlSeconds: NOT_FOUND_TTL_S };
}
