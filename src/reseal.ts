/**
 * `posthaste reseal`: seals everything anew under the newest master key and reports how many values each key seals,
 * so that an old key can be taken out of POSTHASTE_MASTER_KEYS when its count is 0. Safe to run while serving, and
 * to repeat: a value that changes meanwhile is left to the next run.
 */
import { HEADERS_PURPOSE, SECRET_PURPOSE, TLS_PURPOSE } from './activities/prepare.ts';
import type { Pool } from './db/pool.ts';
import { replaceSealed, type SealedKind, sealedPage } from './db/sealed.ts';
import { keyIdOf, type MasterKeys, sealingAad } from './secrets.ts';

const PURPOSES: Record<SealedKind, string> = {
  secret: SECRET_PURPOSE,
  headers: HEADERS_PURPOSE,
  tls: TLS_PURPOSE,
};
const PAGE = 500;

export interface ResealReport {
  resealed: number;
  /** Values that no loaded key opens: their key is missing from POSTHASTE_MASTER_KEYS, or they were altered. */
  unreadable: { kind: SealedKind; id: string; keyId: string }[];
  /** Values per master key id afterwards. */
  perKey: Record<string, number>;
}

/** @param check count only; seal nothing. */
export async function reseal(
  db: Pool,
  keys: MasterKeys,
  options: { check?: boolean } = {},
): Promise<ResealReport> {
  const newest = keys.ids[0]!;
  const report: ResealReport = {
    resealed: 0,
    unreadable: [],
    perKey: Object.fromEntries(keys.ids.map((id) => [id, 0])),
  };
  for (const kind of Object.keys(PURPOSES) as SealedKind[]) {
    let after = '';
    for (;;) {
      const page = await sealedPage(db, kind, after, PAGE);
      for (const value of page) {
        let keyId = keyIdOf(value.sealed);
        const aad = sealingAad(PURPOSES[kind], value.tenant, value.endpoint, value.id);
        try {
          const plain = keys.open(value.sealed, aad);
          if (keyId !== newest && !options.check) {
            if (await replaceSealed(db, value, keys.seal(plain, aad), newest)) {
              report.resealed++;
              keyId = newest;
            }
          }
        } catch {
          report.unreadable.push({ kind, id: value.id, keyId });
        }
        report.perKey[keyId] = (report.perKey[keyId] ?? 0) + 1;
      }
      if (page.length < PAGE) break;
      after = page.at(-1)!.id;
    }
  }
  return report;
}
