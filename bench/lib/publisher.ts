/**
 * The producers' side, in a process of its own: POSTs events to the API, at a rate (open loop: an event is due when
 * it is due, however slow the answers) or as fast as they are accepted. Remembers when each accepted event was due.
 * Bare sockets: an HTTP client would take CPU that the measured processes need on the same machine.
 */
import { writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { serve } from './child.ts';
import { nowMs, sleep } from './clock.ts';

export interface Publish {
  port: number;
  key: string;
  /** Event i goes to tenants[i % length]. */
  tenants: string[];
  bytes: number;
  seconds: number;
  /** Events per second; left out: as fast as `connections` take them. */
  rate?: number;
  connections?: number;
  /** Every event with an id of the caller's own. */
  keyed?: boolean;
  /** One line per accepted event: ms, event, tenant. */
  file: string;
}

export interface Published {
  accepted: number;
  refused: number;
  seconds: number;
  /** Of the 202, milliseconds. */
  p50: number;
  p99: number;
}

interface Line {
  socket: Socket;
  answer: string;
  dueAt: number;
  tenant: string;
  done: () => void;
}

async function publish(options: Publish): Promise<Published> {
  const data = `"type":"bench.made","data":{"a":"${'x'.repeat(Math.max(0, options.bytes - 150))}"}}`;
  const request = (tenant: string, id: string | null): Buffer => {
    const body = id === null ? `{${data}` : `{"id":"${id}",${data}`;
    const head = `POST /v1/tenants/${tenant}/events HTTP/1.1\r\nhost: 127.0.0.1:${options.port}\r\nauthorization: Bearer ${options.key}\r\n`;
    return Buffer.from(
      `${head}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
  };
  const plain = new Map([...new Set(options.tenants)].map((tenant) => [tenant, request(tenant, null)]));
  const run = nowMs().toString(36).replace('.', '_');
  const lines: string[] = [];
  const latencies: number[] = [];
  let refused = 0;
  const idle: Line[] = [];
  const under = new Set<Line>();

  const answered = (line: Line): void => {
    const end = line.answer.indexOf('\r\n\r\n');
    if (end < 0) return;
    const length = Number(/content-length: (\d+)/i.exec(line.answer)?.[1] ?? Number.NaN);
    if (line.answer.length < end + 4 + length) return;
    if (line.answer.startsWith('HTTP/1.1 202')) {
      const at = line.answer.indexOf('"id":"', end) + 6;
      lines.push(
        `${line.dueAt.toFixed(2)}\t${line.answer.slice(at, line.answer.indexOf('"', at))}\t${line.tenant}`,
      );
      latencies.push(nowMs() - line.dueAt);
    } else if (refused++ === 0) console.error(`refused: ${line.answer.slice(0, 500)}`);
    line.answer = '';
    under.delete(line);
    line.done();
  };
  const open = (): Line => {
    const socket = connect(options.port, '127.0.0.1').setNoDelay(true);
    const line: Line = { socket, answer: '', dueAt: 0, tenant: '', done: () => {} };
    socket.on('data', (chunk: Buffer) => {
      line.answer += chunk.toString('latin1');
      answered(line);
    });
    const broken = (): void => {
      const at = idle.indexOf(line);
      if (at >= 0) idle.splice(at, 1);
      if (!under.delete(line)) return;
      refused++;
      line.done();
    };
    socket.on('error', broken).on('close', broken);
    return line;
  };
  const send = (line: Line, index: number, dueAt: number, done: () => void): void => {
    line.tenant = options.tenants[index % options.tenants.length]!;
    line.dueAt = dueAt;
    line.done = done;
    under.add(line);
    line.socket.write(options.keyed ? request(line.tenant, `${run}-${index}`) : plain.get(line.tenant)!);
  };

  const started = nowMs();
  const until = started + options.seconds * 1_000;
  let sent = 0;
  if (options.rate === undefined) {
    await Promise.all(
      Array.from(
        { length: options.connections ?? 64 },
        () =>
          new Promise<void>((resolve) => {
            const line = open();
            const next = (): void => {
              if (nowMs() >= until || line.socket.destroyed) resolve();
              else send(line, sent++, nowMs(), next);
            };
            next();
          }),
      ),
    );
  } else {
    const total = Math.round(options.rate * options.seconds);
    const gap = 1_000 / options.rate;
    while (sent < total) {
      const due = started + sent * gap;
      if (due > nowMs()) {
        await sleep(due - nowMs());
        continue;
      }
      const line = idle.pop() ?? open();
      send(line, sent++, due, () => line.socket.destroyed || idle.push(line));
    }
    for (const end = nowMs() + 15_000; under.size > 0 && nowMs() < end; ) await sleep(5);
  }
  const seconds = (nowMs() - started) / 1_000;
  for (const line of [...idle, ...under]) line.socket.destroy();
  writeFileSync(options.file, lines.join('\n'));
  latencies.sort((a, b) => a - b);
  const at = (q: number): number => latencies[Math.floor(latencies.length * q)] ?? 0;
  return { accepted: lines.length, refused, seconds, p50: at(0.5), p99: at(0.99) };
}

serve({ publish });
