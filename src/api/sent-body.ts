/** The bytes that every attempt of a delivery sends, from its event. Shared by attempts and dead letters. */
import { buildBody } from '../domain/body.ts';

export interface StoredEvent {
  raw: boolean;
  id: string;
  type: string;
  occurred_at: Date;
  version: string | null;
  body: Buffer; // the producer's bytes
}

export function sentBody(event: StoredEvent, sequence: number): Buffer {
  return buildBody(
    {
      raw: event.raw,
      event: event.id,
      type: event.type,
      occurredAtMs: event.occurred_at.getTime(),
      version: event.version,
      sequence,
    },
    event.body,
    (text) => Buffer.from(text),
    (parts) => Buffer.concat(parts),
  );
}
