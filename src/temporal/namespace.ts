/**
 * Makes a Temporal namespace ready for Posthaste: retention of three days, so that the Web UI shows what lately ended,
 * and the search attributes. Called by `posthaste migrate` when the environment names a server. Neither is needed for
 * delivering: what the server does not allow is reported, and everything works without.
 */
import { Connection, type ConnectionOptions } from '@temporalio/client';
import { SEARCH_ATTRIBUTES } from '../workflows/contract.ts';

const RETENTION_SECONDS = 3 * 24 * 3_600;
const DEADLINE_MS = 10_000;
// temporal.api.enums.v1.IndexedValueType
const KEYWORD = 2;
const INT = 3;

/** One line per thing done or refused, for people. */
export async function prepareNamespace(options: ConnectionOptions, namespace: string): Promise<string[]> {
  const said: string[] = [];
  let connection: Connection;
  try {
    connection = await Connection.connect({ ...options, connectTimeout: DEADLINE_MS });
  } catch (error) {
    const { message } = error as Error;
    return [
      `Temporal at ${options.address} could not be prepared (${message}); run migrate again when it is up`,
    ];
  }
  const attempt = async (what: string, act: () => Promise<string | null>): Promise<void> => {
    try {
      const done = await connection.withDeadline(Date.now() + DEADLINE_MS, act);
      if (done !== null) said.push(done);
    } catch (error) {
      said.push(`${what}: not possible here (${(error as Error).message}); Posthaste works without`);
    }
  };
  try {
    await attempt('namespace retention', async () => {
      const { config } = await connection.workflowService.describeNamespace({ namespace });
      const seconds = Number(config?.workflowExecutionRetentionTtl?.seconds ?? 0);
      if (seconds >= RETENTION_SECONDS) return null;
      await connection.workflowService.updateNamespace({
        namespace,
        config: { workflowExecutionRetentionTtl: { seconds: RETENTION_SECONDS as never } },
      });
      return `namespace ${namespace}: retention is 3 days now`;
    });
    await attempt('search attributes', async () => {
      const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
      const missing = Object.entries(SEARCH_ATTRIBUTES).filter(
        ([, name]) => !(name in (customAttributes ?? {})),
      );
      if (missing.length === 0) return null;
      const searchAttributes = Object.fromEntries(
        missing.map(([key, name]) => [name, key === 'attempt' ? INT : KEYWORD]),
      );
      await connection.operatorService.addSearchAttributes({ namespace, searchAttributes });
      return `namespace ${namespace}: added ${missing.map(([, name]) => name).join(', ')}`;
    });
  } finally {
    await connection.close();
  }
  return said;
}
