/** With RECORD_HISTORIES=1 the shapes that test/workflows/replay.test.ts replays are written anew. */
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';

export async function keepHistory(client: Client, shape: string, workflowId: string): Promise<void> {
  if (process.env.RECORD_HISTORIES !== '1') return;
  const history = await client.workflow.getHandle(workflowId).fetchHistory();
  const text = historyToJSON(history).replaceAll(hostname(), 'host').replaceAll(`${process.cwd()}/`, '');
  writeFileSync(
    new URL(`../workflows/histories/${shape}.json`, import.meta.url),
    `${JSON.stringify(JSON.parse(text), null, 1)}\n`,
  );
}
