import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { renderConfiguration, renderEnvExample } from '../scripts/config-docs.ts';
import { type Config, loadConfig, type Problem, type Role, renderProblems } from '../src/config.ts';

const KEYS = `k1:${Buffer.alloc(32, 7).toString('base64')}`;
const minimal = { DATABASE_URL: 'postgres://u:p@db:5432/x', POSTHASTE_MASTER_KEYS: KEYS };

function configOf(env: Record<string, string>, role: Exclude<Role, 'start'> = 'all'): Config {
  const loaded = loadConfig(env, role);
  if (!loaded.ok) throw new Error(renderProblems(loaded.problems));
  return loaded.config;
}

function problemsOf(env: Record<string, string>, role: Role = 'start'): Problem[] {
  const loaded = role === 'start' ? loadConfig(env, role) : loadConfig(env, role);
  return loaded.ok ? [] : loaded.problems;
}

describe('loadConfig', () => {
  it('fills in the documented defaults', () => {
    expect(configOf(minimal)).toMatchObject({
      port: 8080,
      host: '127.0.0.1',
      databaseDirectUrl: minimal.DATABASE_URL,
      dataDir: '.posthaste',
      grouping: 'auto',
      maxEventBytes: 262_144,
      retentionDays: 30,
      egressAllow: { items: [] },
      logLevel: 'info',
      temporal: { given: false, address: 'localhost:7233', namespace: 'default' },
    });
  });

  it('wants a sender with a mail server, and takes either form of one', () => {
    const smtp = { SMTP_URL: 'smtp://u:p@mail.example.net:587' };
    expect(problemsOf({ ...minimal, ...smtp }, 'all').map(({ name }) => name)).toEqual(['MAIL_FROM']);
    for (const from of ['hooks@example.net', 'Webhooks at Example <hooks@example.net>']) {
      expect(configOf({ ...minimal, ...smtp, MAIL_FROM: from })).toMatchObject({ mailFrom: from });
    }
  });

  it('reports every bad value at once, each with its name and what is expected', () => {
    const bad = {
      PORT: '99999',
      DATABASE_URL: 'mysql://db/x',
      DATABASE_DIRECT_URL: 'db.example.net',
      POSTHASTE_ADMIN_KEY: 'short',
      POSTHASTE_MASTER_KEYS: 'k1:AAAA',
      POSTHASTE_GROUPING: 'always',
      POSTHASTE_MAX_EVENT_BYTES: '1e6',
      EGRESS_ALLOW: '10.0.0.1/8',
      EGRESS_PROXY: 'socks5://proxy:1080',
      SMTP_URL: 'http://mail.example.net',
      MAIL_FROM: 'Webhooks <hooks@example.net>\r\nBcc: x@example.net',
      POSTHASTE_SELF_CHECK: 'https://example.com,ftp://example.com',
      LOG_LEVEL: 'loud',
      TEMPORAL_TLS: 'perhaps',
    };
    const problems = problemsOf(bad, 'all');
    expect(problems.map(({ name }) => name)).toEqual(Object.keys(bad).sort((a, b) => a.localeCompare(b)));
    const text = renderProblems(problems);
    expect(text).toContain('14 bad or missing settings');
    expect(text).toContain('PORT must be a port, 0 to 65535; got "99999"');
    expect(text).toContain('key "k1" is not 32 bytes');
    expect(text).toContain('"10.0.0.1/8" is not a network');
  });

  it('never repeats a secret, whatever is wrong with it', () => {
    const secret = 'hunter2hunter2';
    const env = {
      DATABASE_URL: `mysql://user:${secret}@db/x`,
      DATABASE_DIRECT_URL: `http://${secret}`,
      POSTHASTE_ADMIN_KEY: `${secret} with spaces`,
      POSTHASTE_MASTER_KEYS: `k1:${secret}`,
      EGRESS_PROXY: `socks5://user:${secret}@proxy`,
      SMTP_URL: `http://user:${secret}@mail`,
      MAIL_FROM: 'hooks@example.net',
    };
    const problems = problemsOf(env, 'all');
    expect(problems).toHaveLength(6);
    expect(renderProblems(problems)).not.toContain(secret);
  });

  it.each<[Role, string[]]>([
    ['start', []],
    ['all', ['DATABASE_URL', 'POSTHASTE_MASTER_KEYS']],
    ['api', ['DATABASE_URL', 'POSTHASTE_MASTER_KEYS']],
    ['worker', ['DATABASE_URL', 'POSTHASTE_MASTER_KEYS']],
    ['relay', ['DATABASE_URL']],
    ['migrate', ['DATABASE_URL']],
    ['reseal', ['DATABASE_URL', 'POSTHASTE_MASTER_KEYS']],
  ])('asks role %s for %j when the environment is empty', (role, names) => {
    expect(problemsOf({}, role).map(({ name }) => name)).toEqual(names);
  });

  it('takes an empty value for one that is not set', () => {
    expect(configOf({ ...minimal, PORT: '', EGRESS_ALLOW: '', TEMPORAL_ADDRESS: '' })).toMatchObject({
      port: 8080,
    });
    expect(problemsOf({ DATABASE_URL: '' }, 'migrate')).toMatchObject([
      { name: 'DATABASE_URL', got: 'nothing' },
    ]);
  });

  it('reads Temporal’s settings as the SDK and the CLI do', () => {
    const { temporal } = configOf({
      ...minimal,
      TEMPORAL_ADDRESS: 'temporal.example.net:7233',
      TEMPORAL_NAMESPACE: 'hooks',
      TEMPORAL_API_KEY: 'key',
    });
    expect(temporal).toMatchObject({ given: true, namespace: 'hooks' });
    expect(temporal.connectionOptions).toMatchObject({
      address: 'temporal.example.net:7233',
      apiKey: 'key',
      tls: true,
    });
  });

  it.each([
    ['TEMPORAL_ADDRESS', 'http://temporal:7233'],
    ['TEMPORAL_ADDRESS', 'temporal'],
    ['TEMPORAL_TLS_CLIENT_CERT_PATH', '/nowhere/client.pem'],
    ['TEMPORAL_CONFIG_FILE', '/nowhere/temporal.toml'],
    ['TEMPORAL_PROFILE', 'nobodys'],
  ])('names %s when its value is %s', (name, value) => {
    expect(problemsOf({ [name]: value })).toMatchObject([{ name }]);
  });
});

describe('the documents about configuration', () => {
  const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');

  it('say what the schema says (npm run docs writes them)', () => {
    expect(read('docs/configuration.md')).toBe(renderConfiguration());
    expect(read('.env.example')).toBe(renderEnvExample());
  });
});
