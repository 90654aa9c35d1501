/** What the API is given by src/main.ts. */
import type { Pool } from '../db/pool.ts';
import type { EgressAllow } from '../domain/addresses.ts';
import type { Log } from '../log.ts';
import type { MasterKeys } from '../secrets.ts';

export interface ApiDeps {
  readonly db: Pool;
  readonly config: {
    readonly egressAllow: EgressAllow;
    readonly masterKeys: MasterKeys;
    readonly maxEventBytes: number;
  };
  /** The relay has work: called after the commit of new events and resends. */
  poke(): void;
  /** A delivery is due now: the scanner should look. */
  scan?(): void;
  /** There is news of an endpoint for the health step. */
  tellHealth?(): void;
  /** A hint to the delivery's workflow after resend and cancel; whether it fails is nobody's concern here. */
  wake?(delivery: string, generation: number): Promise<void>;
  readonly log: Log;
  readiness(): Promise<{ ok: boolean; checks: unknown }>;
  metricsText?(): Promise<string>;
  /** Replaces the plain page at `/`. */
  uiHtml?(): string | Promise<string>;
}
