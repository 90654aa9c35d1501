/** Histories of workflows as files that test/workflows/replay.test.ts replays on each build. */
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';

const folder = new URL('../workflows/histories/', import.meta.url);

/** With RECORD_HISTORIES=1 the shape is written anew; RECORD_HISTORIES=<shape> writes that one alone. */
export async function keepHistory(client: Client, shape: string, workflowId: string): Promise<void> {
  const wanted = process.env.RECORD_HISTORIES;
  if (wanted !== '1' && wanted !== shape) return;
  const history = await client.workflow.getHandle(workflowId).fetchHistory();
  const text = historyToJSON(history).replaceAll(hostname(), 'host').replaceAll(`${process.cwd()}/`, '');
  writeFileSync(new URL(`${shape}.json`, folder), `${JSON.stringify(JSON.parse(text), null, 1)}\n`);
}
