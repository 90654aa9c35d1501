/** What operators do to endpoints from Temporal's side: the same functions the API calls. */
import { moveEndpoint } from '../db/endpoint-states.ts';
import { disownEndpointRow } from '../db/health.ts';
import type { ActivityDeps } from './deps.ts';

export async function pauseEndpoint(deps: ActivityDeps, endpoint: string): Promise<{ state: string }> {
  const state = await moveEndpoint(deps.db, null, endpoint, 'pause');
  deps.tellHealth();
  return { state: state ?? 'not_found' };
}

export async function resumeEndpoint(deps: ActivityDeps, endpoint: string): Promise<{ state: string }> {
  const state = await moveEndpoint(deps.db, null, endpoint, 'resume');
  deps.tellHealth();
  return { state: state ?? 'not_found' };
}

export async function disownEndpoint(deps: ActivityDeps, endpoint: string): Promise<void> {
  await disownEndpointRow(deps.db, endpoint);
}
