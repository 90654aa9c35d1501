/** What a stretch of work cost: CPU per process, SQL statements and rows, WAL, Temporal requests and actions, sockets. */
import { Client, Connection } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Child } from './child.ts';
import { nowMs } from './clock.ts';
import type { Temporal } from './servers.ts';
import { cpuMs, postgresCpuMs } from './usage.ts';

export interface CostSources {
  db: Pool;
  postgresPid: number;
  temporal: Temporal;
  receiver: Child;
  publisher: Child;
  posthasteCpuMs: () => number;
}

/** Running totals; differences of two are what a stretch cost. CPU in milliseconds. */
export interface Snapshot {
  at: number;
  posthaste: number;
  postgres: number;
  temporal: number;
  receiver: number;
  publisher: number;
  statements: number;
  rows: number;
  walBytes: number;
  /** By operation, as the frontend counts requests of the default namespace. */
  requests: Record<string, number>;
  actions: number;
  connections: number;
}

export async function snapshot(sources: CostSources): Promise<Snapshot> {
  const sql = await sources.db.query(
    `select coalesce(sum(s.calls), 0)::float8 as statements, coalesce(sum(s.rows), 0)::float8 as rows,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal
     from pg_stat_statements s join pg_database d on d.oid = s.dbid join pg_roles r on r.oid = s.userid
     where d.datname = current_database() and r.rolname <> current_user`,
  );
  const metrics = await (await fetch(sources.temporal.metricsUrl)).text();
  const { connections } = await sources.receiver.call<{ connections: number }>('counts');
  return {
    at: nowMs(),
    posthaste: sources.posthasteCpuMs(),
    postgres: postgresCpuMs(sources.postgresPid),
    temporal:
      (cpuMs(sources.temporal.pid) ?? 0) +
      (sources.temporal.postgresPid === undefined ? 0 : postgresCpuMs(sources.temporal.postgresPid)),
    receiver: cpuMs(sources.receiver.pid) ?? 0,
    publisher: cpuMs(sources.publisher.pid) ?? 0,
    statements: sql.rows[0].statements,
    rows: sql.rows[0].rows,
    walBytes: sql.rows[0].wal,
    requests: counted(metrics, 'service_requests'),
    actions: Object.values(counted(metrics, 'action')).reduce((sum, n) => sum + n, 0),
    connections,
  };
}

/** Posthaste's statements of the run by the time PostgreSQL spent in them (wall time: waits included). */
export async function dearestStatements(db: Pool): Promise<{ query: string; calls: number; ms: number }[]> {
  const { rows } = await db.query(
    `select left(regexp_replace(s.query, '\\s+', ' ', 'g'), 90) as query, s.calls::float8 as calls, s.total_exec_time as ms
     from pg_stat_statements s join pg_database d on d.oid = s.dbid join pg_roles r on r.oid = s.userid
     where d.datname = current_database() and r.rolname <> current_user order by s.total_exec_time desc limit 12`,
  );
  return rows;
}

/** Values of one Prometheus counter in the default namespace, by operation. */
function counted(text: string, name: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`) || !line.includes('namespace="default"')) continue;
    if (name === 'service_requests' && !line.includes('service_name="frontend"')) continue;
    const key = /(?:action_type|operation)="([^"]+)"/.exec(line)?.[1] ?? '';
    counts[key] = (counts[key] ?? 0) + Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return counts;
}

/** Pollers ask all the time, work or no work. */
const POLLS =
  /^(Poll|GetSystemInfo|DescribeNamespace|UpdateNamespace|GetClusterInfo|RecordWorkerHeartbeat|ShutdownWorker|List|Count)/;

/** Figures per delivery (or other unit) of the stretch between two snapshots. CPU in microseconds. */
export function costs(from: Snapshot, to: Snapshot, deliveries: number): Record<string, number> {
  const per = (value: number): number => value / Math.max(1, deliveries);
  const us = (name: 'posthaste' | 'postgres' | 'temporal' | 'receiver' | 'publisher'): number =>
    per((to[name] - from[name]) * 1_000);
  return {
    cpu_posthaste_us: us('posthaste'),
    cpu_postgres_us: us('postgres'),
    cpu_temporal_us: us('temporal'),
    cpu_receiver_us: us('receiver'),
    cpu_publisher_us: us('publisher'),
    sql_statements: per(to.statements - from.statements),
    sql_rows: per(to.rows - from.rows),
    wal_bytes: per(to.walBytes - from.walBytes),
    temporal_requests: per(workRequests(to) - workRequests(from)),
    temporal_actions: per(to.actions - from.actions),
    connections_per_1000: per(to.connections - from.connections) * 1_000,
  };
}

export const workRequests = (snapshot: Snapshot): number =>
  Object.entries(snapshot.requests).reduce((sum, [name, n]) => (POLLS.test(name) ? sum : sum + n), 0);

/** History events of every workflow of the run, and how many workflows there were. */
export async function countEvents(address: string): Promise<{ workflows: number; events: number }> {
  const connection = await Connection.connect({ address });
  try {
    const client = new Client({ connection });
    let workflows = 0;
    let events = 0;
    const open: string[] = [];
    for await (const { workflowId, historyLength, status } of client.workflow.list({ pageSize: 1_000 })) {
      workflows++;
      if (status.name === 'RUNNING') open.push(workflowId);
      else events += historyLength ?? 0;
    }
    for (const workflowId of open) {
      const described = await client.workflow
        .getHandle(workflowId)
        .describe()
        .catch(() => null);
      events += described?.historyLength ?? 0;
    }
    return { workflows, events };
  } finally {
    await connection.close();
  }
}
