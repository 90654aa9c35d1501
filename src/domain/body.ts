/**
 * The bytes that are signed and sent, rebuilt from stored facts alone: every attempt, every replay and the API's
 * "as sent" view get the same. JSON data is spliced in as it came, never parsed and written again.
 */

export interface BodyFacts {
  readonly raw: boolean;
  readonly event: string;
  readonly type: string;
  readonly occurredAtMs: number;
  readonly version: string | null; // the producer's version, decimal digits
  readonly sequence: number;
}

/**
 * The text around `data` in the default envelope `{"id","type","timestamp","version","sequence","data"}`, a superset
 * of the Standard Webhooks payload (type, timestamp, data). Null for raw events: their body goes out alone.
 */
export function envelope(facts: BodyFacts): { head: string; tail: string } | null {
  if (facts.raw) return null;
  const timestamp = new Date(facts.occurredAtMs).toISOString();
  return {
    head: `{"id":${JSON.stringify(facts.event)},"type":${JSON.stringify(facts.type)},"timestamp":"${timestamp}","version":${facts.version ?? 'null'},"sequence":${facts.sequence},"data":`,
    tail: '}',
  };
}

/** Concatenates the envelope and the data; `concat` and `encode` are the caller's, as this folder knows no Buffer. */
export function buildBody<B>(
  facts: BodyFacts,
  data: B,
  encode: (text: string) => B,
  concat: (parts: B[]) => B,
): B {
  const around = envelope(facts);
  return around === null ? data : concat([encode(around.head), data, encode(around.tail)]);
}
