/** A name server on loopback whose answers a test changes at will (RFC 1035, UDP only). */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';

/** What a name answers. `silent` drops the query; `rcode` 2 is SERVFAIL, 3 NXDOMAIN, 5 REFUSED. */
export interface Zone {
  readonly a?: readonly string[];
  /** Sixteen-byte addresses as hex. */
  readonly aaaa?: readonly string[];
  readonly rcode?: number;
  readonly silent?: boolean;
  readonly silentAaaa?: boolean;
  /** Seconds, default 0. */
  readonly ttl?: number;
}

/** A running name server. */
export interface NameServer extends AsyncDisposable {
  /** For createEgress({ dnsServers }). */
  readonly address: string;
  /** Names without an entry do not exist. */
  readonly zones: Map<string, Zone>;
  /** `type name` of every query. */
  readonly queries: string[];
}

const TYPE_A = 1;
const TYPE_AAAA = 28;

/** Starts it on a free port. */
export async function startNameServer(zones: Record<string, Zone> = {}): Promise<NameServer> {
  const socket = createSocket('udp4');
  const map = new Map(Object.entries(zones));
  const queries: string[] = [];
  socket.on('message', (query, from) => {
    const { name, end } = readName(query);
    const type = query.readUInt16BE(end);
    queries.push(`${type === TYPE_A ? 'A' : 'AAAA'} ${name}`);
    const zone = map.get(name) ?? { rcode: 3 };
    if (zone.silent || (zone.silentAaaa && type === TYPE_AAAA)) return;
    socket.send(reply(query, end + 4, type, zone), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`,
    zones: map,
    queries,
    async [Symbol.asyncDispose]() {
      socket.close();
      await once(socket, 'close');
    },
  };
}

function readName(query: Buffer): { name: string; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let size = query[at] as number; size > 0; size = query[at] as number) {
    labels.push(query.toString('latin1', at + 1, at + 1 + size));
    at += 1 + size;
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function reply(query: Buffer, questionEnd: number, type: number, zone: Zone): Buffer {
  const datas =
    type === TYPE_A
      ? (zone.a ?? []).map((ip) => Buffer.from(ip.split('.').map(Number)))
      : (zone.aaaa ?? []).map((hex) => Buffer.from(hex, 'hex'));
  const head = Buffer.from(query.subarray(0, 12));
  head.writeUInt16BE(0x8180 | (zone.rcode ?? 0), 2);
  head.writeUInt16BE(zone.rcode ? 0 : datas.length, 6);
  head.writeUInt32BE(0, 8);
  const parts = [head, query.subarray(12, questionEnd)];
  if (!zone.rcode) for (const data of datas) parts.push(record(type, zone.ttl ?? 0, data));
  return Buffer.concat(parts);
}

function record(type: number, ttl: number, data: Buffer): Buffer {
  const fixed = Buffer.alloc(12);
  // The name of the question, by pointer.
  fixed.writeUInt16BE(0xc00c, 0);
  fixed.writeUInt16BE(type, 2);
  fixed.writeUInt16BE(1, 4);
  fixed.writeUInt32BE(ttl, 6);
  fixed.writeUInt16BE(data.length, 10);
  return Buffer.concat([fixed, data]);
}
