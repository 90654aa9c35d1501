/** Asks test/support/global-setup.ts for a shared server, which starts it when it is the first to ask. */
import { inject } from 'vitest';
import type { Shared } from './global-setup.ts';

export async function shared<K extends keyof Shared>(name: K): Promise<Shared[K]> {
  const response = await fetch(`${inject('servers')}/${name}`);
  if (!response.ok)
    throw new Error(`The shared ${name} of the tests did not start: ${await response.text()}`);
  return (await response.json()) as Shared[K];
}
