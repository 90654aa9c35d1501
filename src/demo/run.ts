/**
 * One demo event through the real path: tenant, endpoint and event by the public API, as any user would.
 * Called by src/start.ts. The endpoint is kept between runs (its secret in the data folder); only its port moves.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface DemoOptions {
  api: string;
  adminKey: string;
  receiverUrl: string;
  dataDir: string;
  /** Told before the event is sent, so that the receiver can verify it. */
  useSecret: (secret: string) => void;
}

const TENANT = 'demo';

/** Answers the endpoint's and the event's id. */
export async function runDemo(options: DemoOptions): Promise<{ endpoint: string; event: string }> {
  const file = join(options.dataDir, 'demo-endpoint.json');
  const call = async (
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; json: Record<string, unknown> }> => {
    const response = await fetch(options.api + path, {
      method,
      headers: { authorization: `Bearer ${options.adminKey}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const json = (await response.json()) as Record<string, unknown>;
    if (!response.ok && response.status !== 404)
      throw new Error(`${method} ${path} answered ${response.status}: ${JSON.stringify(json)}`);
    return { status: response.status, json };
  };
  await call('PUT', `/v1/tenants/${TENANT}`, { name: 'Demo tenant' });
  let endpoint: { id: string; secret: string } | undefined;
  if (existsSync(file)) {
    endpoint = JSON.parse(readFileSync(file, 'utf8')) as { id: string; secret: string };
    const moved = await call('PATCH', `/v1/tenants/${TENANT}/endpoints/${endpoint.id}`, {
      url: options.receiverUrl,
    });
    if (moved.status === 404) endpoint = undefined;
  }
  if (endpoint === undefined) {
    const { json } = await call('POST', `/v1/tenants/${TENANT}/endpoints`, {
      url: options.receiverUrl,
      description: 'The demo receiver of npm start',
    });
    endpoint = { id: json.id as string, secret: json.secret as string };
    writeFileSync(file, JSON.stringify(endpoint), { mode: 0o600 });
  }
  options.useSecret(endpoint.secret);
  const { json } = await call('POST', `/v1/tenants/${TENANT}/events`, {
    type: 'demo.started',
    data: { hello: 'world' },
  });
  return { endpoint: endpoint.id, event: json.id as string };
}
