/** After a resend or cancel: the relay may have work, and a sleeping workflow should look at its row. Hints only. */
import type { Operated } from '../db/operators.ts';
import type { ApiDeps } from './deps.ts';

/** Beyond this many the scanner is the better messenger. */
const MAX_HINTS = 50;

export function wakeAll(deps: ApiDeps, rows: readonly Operated[]): void {
  if (rows.length === 0) return;
  deps.poke();
  for (const row of rows.slice(0, MAX_HINTS)) {
    void hint(deps, row).catch((error: unknown) => {
      deps.log.debug(
        { err: error, delivery: row.delivery },
        'a workflow could not be woken; its row will be found',
      );
    });
  }
}

async function hint(deps: ApiDeps, row: Operated): Promise<void> {
  await deps.wake?.(row.delivery, row.generation);
}
