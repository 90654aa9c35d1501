/** The API of one test file: a database of its own, a real socket, and a client that is rude where it must be. */
import { afterAll, beforeAll } from 'vitest';
import { type Listening, listen } from '../../src/api/listen.ts';
import { type ApiDeps, createApi, ensureAdminKey } from '../../src/api/server.ts';
import { createPool, type Pool } from '../../src/db/pool.ts';
import { parseEgressAllow } from '../../src/domain/addresses.ts';
import { createLog } from '../../src/log.ts';
import { createDatabase } from '../support/postgres.ts';
import { masterKeys } from '../support/seed.ts';

export const ADMIN_KEY = 'test-admin-key-0123456789';
export const MAX_EVENT_BYTES = 64 * 1024;

export interface Answer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted, not typed
  json: any;
  text: string;
}

export interface Rig {
  db: Pool;
  url: string;
  databaseUrl: string;
  api: Listening;
  pokes: number;
  woken: [string, number][];
  logged: string[];
  /** One request; an object body becomes JSON. */
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  tenant(): Promise<string>;
}

let tenants = 0;

/** Call it at the top of a file. `change` replaces parts of what the API is given. */
export function rig(change: Partial<ApiDeps> = {}): Rig {
  const self = { pokes: 0, woken: [], logged: [] } as unknown as Rig;
  beforeAll(async () => {
    const database = await createDatabase();
    self.databaseUrl = database.url;
    self.db = createPool(database.url, { max: 10 });
    await ensureAdminKey(self.db, ADMIN_KEY);
    const log = createLog({ level: 'info', stream: { write: (line: string) => self.logged.push(line) } });
    const api = createApi({
      db: self.db,
      config: {
        egressAllow: parseEgressAllow('127.0.0.0/8:*'),
        masterKeys,
        maxEventBytes: MAX_EVENT_BYTES,
      },
      poke: () => {
        self.pokes++;
      },
      wake: async (delivery, generation) => {
        self.woken.push([delivery, generation]);
        throw new Error('nobody listens'); // must not matter
      },
      log,
      readiness: async () => ({ ok: true, checks: { database: true } }),
      ...change,
    });
    self.api = await listen(api, { host: '127.0.0.1', port: 0, log });
    self.url = self.api.url;
  });
  afterAll(async () => {
    await self.api?.close();
    await self.db?.end();
  });

  self.call = async (method, path, body, headers = {}) => {
    const json = typeof body === 'object' && body !== null && !(body instanceof Uint8Array);
    const response = await fetch(self.url + path, {
      method,
      headers: {
        authorization: `Bearer ${ADMIN_KEY}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: json ? JSON.stringify(body) : (body as string) }),
      redirect: 'manual',
    });
    const text = await response.text();
    const parsable =
      text !== '' && /^application\/(?:problem\+)?json$/.test(response.headers.get('content-type') ?? '');
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: parsable ? JSON.parse(text) : undefined,
    };
  };
  self.tenant = async () => {
    const id = `t${++tenants}`;
    await self.call('PUT', `/v1/tenants/${id}`, {});
    return id;
  };
  return self;
}
