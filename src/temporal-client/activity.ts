/**
 * posthaste/temporal/activity: sendEvent as an activity for workers that users run themselves, in any namespace or cluster
 * (a child workflow can't leave its namespace). It talks to Posthaste's database or to its API.
 */
import {
  databaseSource,
  type EventSource,
  perCall,
  refused,
  sendEventThrough,
} from '../activities/send-event.ts';
import { createPool } from '../db/pool.ts';
import { REFUSED, type SendEventInput, type SendEventResult } from '../workflows/contract.ts';

export type SendEventOptions =
  | { databaseUrl: string } // a role that may call posthaste.enqueue and read what became of it
  | { apiUrl: string; key: string };

const REQUEST_MS = 15_000;
/** Deliveries that the API shows with an event, and on a page at the most. */
const SHOWN = 200;

interface Shown {
  created_at: string;
  sequence: number | null;
  test: boolean;
  deliveries: { id: string }[];
}

/**
 * The activity, and `close` for its connections. Register it as `{ sendEvent }`. It ends when the deliveries exist; give
 * it a startToCloseTimeout of minutes and a heartbeatTimeout. Tried again it changes nothing; a workflow that is reset or run
 * again sends anew, unless it gives an `id`.
 */
export function createSendEventActivity(options: SendEventOptions): {
  sendEvent(input: SendEventInput): Promise<SendEventResult>;
  close(): Promise<void>;
} {
  const pool =
    'databaseUrl' in options
      ? createPool(options.databaseUrl, { max: 5, applicationName: 'posthaste sendEvent' })
      : null;
  const source = 'databaseUrl' in options ? databaseSource(pool!) : apiSource(options);
  return {
    async sendEvent(input) {
      const { event, deliveries } = await sendEventThrough(source, input, {
        roundMs: Number.POSITIVE_INFINITY,
        idOf: perCall,
      });
      return { event, deliveries: deliveries! };
    },
    async close() {
      await pool?.end();
    },
  };
}

function apiSource({ apiUrl, key }: { apiUrl: string; key: string }): EventSource {
  const call = async (method: string, path: string, body?: string): Promise<Response> =>
    fetch(`${apiUrl.replace(/\/$/, '')}/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
      redirect: 'error',
      signal: AbortSignal.timeout(REQUEST_MS),
    });
  /** The event shows its newest deliveries; of one with more, the list is walked. */
  const all = async (
    tenant: string,
    event: string,
    { created_at, test }: Shown,
  ): Promise<{ id: string }[]> => {
    const since = new Date(Date.parse(created_at) - 3_600_000).toISOString(); // clocks may disagree
    const query = new URLSearchParams({
      event,
      since,
      limit: String(SHOWN),
      ...(test ? { kind: 'test' } : {}),
    });
    const found: { id: string }[] = [];
    for (let cursor: string | null = null; ; ) {
      if (cursor !== null) query.set('cursor', cursor);
      const response = await call('GET', `/tenants/${encodeURIComponent(tenant)}/deliveries?${query}`);
      if (!response.ok) throw await problem(response);
      const page = (await response.json()) as { data: { id: string }[]; next_cursor: string | null };
      found.push(...page.data);
      if (page.next_cursor === null) return found;
      cursor = page.next_cursor;
    }
  };
  return {
    pollMs: 200,
    async insert({ tenant, type, version, timestamp }, id, json) {
      // The data is spliced in as it is, not parsed and written again.
      const rest = JSON.stringify({ id, type, version, timestamp });
      const body = `${rest.slice(0, -1)},"data":${json}}`;
      const response = await call('POST', `/tenants/${encodeURIComponent(tenant)}/events`, body);
      if (!response.ok) throw await problem(response);
      await response.body?.cancel();
    },
    async deliveries(tenant, event) {
      const path = `/tenants/${encodeURIComponent(tenant)}/events/${encodeURIComponent(event)}`;
      const response = await call('GET', path);
      if (response.status === 404) {
        const error = await problem(response);
        if ((error as { type?: string }).type === REFUSED.tenantNotFound) throw error;
        return undefined;
      }
      if (!response.ok) throw await problem(response);
      const shown = (await response.json()) as Shown;
      if (shown.sequence === null && !shown.test) return null;
      const found = shown.deliveries.length < SHOWN ? shown.deliveries : await all(tenant, event, shown);
      return found.map(({ id }) => id).toSorted();
    },
  };
}

/** What the API refuses for good; anything else is tried again. */
async function problem(response: Response): Promise<Error> {
  const text = await response.text();
  let code: string | undefined;
  let detail = text.slice(0, 300);
  try {
    ({ code, detail } = JSON.parse(text));
  } catch {
    // Not Posthaste's: a proxy's page.
  }
  const message = `Posthaste answered ${response.status} ${code ?? ''}: ${detail}`;
  if (code === 'tenant_not_found') return refused(REFUSED.tenantNotFound, message);
  if (code === 'event_conflict') return refused(REFUSED.eventConflict, message);
  if (code !== undefined && [400, 413, 415, 422].includes(response.status))
    return refused(REFUSED.invalidInput, message);
  return new Error(message);
}
