import { describe, expect, it } from 'vitest';
import { createLog, temporalLogger } from '../src/log.ts';

function capture() {
  const lines: string[] = [];
  const log = createLog({
    level: 'debug',
    fields: { role: 'api' },
    stream: { write: (line) => void lines.push(line) },
  });
  return { log, lines, last: () => JSON.parse(lines.at(-1) as string) };
}

describe('the log', () => {
  it('writes one JSON object per line, with level, time and the fields of the process', () => {
    const { log, last } = capture();
    log.info({ delivery: 'dlv_1' }, 'sent');
    expect(last()).toMatchObject({ level: 'info', role: 'api', delivery: 'dlv_1', msg: 'sent' });
    expect(Date.parse(last().time)).not.toBeNaN();
  });

  it('hides secrets at the top and one and two levels down', () => {
    const { log, lines } = capture();
    const secret = 'whsec_visible';
    log.info(
      { secret, endpoint: { secret, headers: { authorization: secret } }, databaseUrl: secret },
      'made',
    );
    expect(lines.join('')).not.toContain(secret);
  });

  it('keeps what helps of an error and its cause, and nothing a library hung on to it', () => {
    const { log, last } = capture();
    const error = Object.assign(new Error('lost'), { code: '57P01', client: { password: 'visible' } });
    log.warn({ err: new Error('no rows', { cause: error }) }, 'failed');
    expect(last().err).toMatchObject({ message: 'no rows', cause: { message: 'lost', code: '57P01' } });
    expect(JSON.stringify(last())).not.toContain('visible');
  });

  it('takes Temporal’s messages, whose time is a bigint and whose error is a field', () => {
    const { log, last } = capture();
    temporalLogger(log).warn('poll failed', { timestampNanos: 1n, error: new Error('gone') });
    expect(last()).toMatchObject({
      level: 'warn',
      source: 'temporal',
      msg: 'poll failed',
      err: { message: 'gone' },
    });
  });
});
