/**
 * Every environment variable in one schema: parsed once at start-up by main.ts, which prints all bad values together
 * and exits with code 2. docs/configuration.md and .env.example are written from here (npm run docs).
 */
import { existsSync } from 'node:fs';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnectionOptions } from '@temporalio/worker';
import { z } from 'zod';
import { type EgressAllow, parseEgressAllow } from './domain/addresses.ts';
import { type MasterKeys, parseMasterKeys } from './secrets.ts';

export type Role = 'start' | 'all' | 'api' | 'relay' | 'worker' | 'migrate' | 'reseal';

/** What the documents say about a variable beside its default. */
export interface VariableMeta {
  description: string;
  /** Completes "must be …"; shown for every bad value. */
  expected: string;
  /** For the documents, when there is no default or it is not a plain value. */
  example?: string;
  unset?: string;
  /** Its value is never printed. */
  secret?: boolean;
  requiredBy?: readonly Role[];
}

const meta = (about: VariableMeta) => about as VariableMeta & Record<string, unknown>;
const SERVERS = ['all', 'api', 'relay', 'worker', 'migrate', 'reseal'] as const;

/** A parser that throws becomes a check whose message is the parser's. */
function parsedBy<T>(parse: (text: string) => T) {
  return z.string().transform((text, context) => {
    try {
      return parse(text);
    } catch (error) {
      context.addIssue({ code: 'custom', message: (error as Error).message });
      return z.NEVER;
    }
  });
}

const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/)
    .transform(Number)
    .refine((value) => value >= min && value <= max);

const urlOf = (...protocols: string[]) =>
  z.string().refine((text) => protocols.includes(URL.parse(text)?.protocol ?? ''));

/** `address` or `Name <address>`, on one line and without what would need quoting. */
const MAILBOX =
  /^(?:[A-Za-z0-9][A-Za-z0-9 ._-]{0,63} <[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,253}>|[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,253})$/;

function parseSelfCheck(text: string): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  for (const item of items) {
    if (URL.parse(item)?.protocol !== 'https:')
      throw new Error(`${JSON.stringify(item)} is not an https URL`);
  }
  if (items.length > 10) throw new Error(`${items.length} are too many`);
  return items;
}

const postgresUrl = urlOf('postgres:', 'postgresql:');

export const variables = z.object({
  PORT: wholeNumber(0, 65_535)
    .default(8080)
    .meta(meta({ description: 'Port of the HTTP API and the dashboard.', expected: 'a port, 0 to 65535' })),
  HOST: z
    .string()
    .default('127.0.0.1')
    .meta(
      meta({
        description: 'Address to listen on. Set `0.0.0.0` to be reached from other hosts, as in a container.',
        expected: 'an address or host name of this machine',
      }),
    ),
  DATABASE_URL: postgresUrl.optional().meta(
    meta({
      description: 'The PostgreSQL (15 or newer) that holds everything.',
      expected: 'a URL such as postgres://user:password@host:5432/database',
      example: 'postgres://posthaste:password@db.example.net:5432/posthaste',
      unset: '`npm start` brings its own PostgreSQL',
      secret: true,
      requiredBy: SERVERS,
    }),
  ),
  DATABASE_DIRECT_URL: postgresUrl.optional().meta(
    meta({
      description:
        'The same database without a pooler between, for migrations, when `DATABASE_URL` is a PgBouncer.',
      expected: 'a URL such as postgres://user:password@host:5432/database',
      unset: '`DATABASE_URL` is used',
      secret: true,
    }),
  ),
  TEMPORAL_CLI: z
    .string()
    .optional()
    .meta(
      meta({
        description: 'The `temporal` program, whose dev server `npm start` and the tests run.',
        expected: 'the path of the temporal CLI',
        example: '/usr/local/bin/temporal',
        unset: 'it is looked for on `PATH`, then fetched once into the user’s cache folder',
      }),
    ),
  POSTHASTE_DATA_DIR: z
    .string()
    .default('.posthaste')
    .meta(
      meta({
        description: 'Folder in which `npm start` keeps its servers’ data and the keys it made.',
        expected: 'a path',
      }),
    ),
  POSTHASTE_ADMIN_KEY: z
    .string()
    .regex(/^[\x21-\x7e]{20,256}$/)
    .optional()
    .meta(
      meta({
        description: 'Bearer key with every right on the API.',
        expected: '20 to 256 visible ASCII characters without spaces (make one with: openssl rand -hex 32)',
        unset: '`npm start` makes one and keeps it; other roles accept only the keys in the database',
        secret: true,
      }),
    ),
  POSTHASTE_MASTER_KEYS: parsedBy(parseMasterKeys)
    .optional()
    .meta(
      meta({
        description:
          'Keys that seal endpoints’ secrets in the database: `id:base64`, newest first, comma-separated. The first seals, all open.',
        expected: 'id:base64 items of 32 bytes each (make one with: echo k1:$(openssl rand -base64 32))',
        unset: '`npm start` makes one and keeps it',
        secret: true,
        requiredBy: ['all', 'api', 'worker', 'reseal'],
      }),
    ),
  POSTHASTE_GROUPING: z
    .enum(['auto', 'never'])
    .default('auto')
    .meta(
      meta({
        description:
          'Whether first attempts share a workflow when many wait. `never` is one workflow per delivery always, at a far lower top speed.',
        expected: 'auto or never',
      }),
    ),
  POSTHASTE_MAX_EVENT_BYTES: wholeNumber(1_024, 16_777_216)
    .default(262_144)
    .meta(
      meta({
        description: 'Largest event body accepted, in bytes.',
        expected: 'a whole number, 1024 to 16777216',
      }),
    ),
  POSTHASTE_RETENTION_DAYS: wholeNumber(0, 3_650)
    .default(30)
    .meta(
      meta({
        description:
          'Whole days (UTC) that events, ended deliveries and attempts are kept; `0` keeps them for ever. Unfinished deliveries and dead letters keep what they need beyond it. Written to the database by `posthaste migrate` and `npm start`.',
        expected: 'a whole number, 0 to 3650',
      }),
    ),
  EGRESS_ALLOW: parsedBy(parseEgressAllow)
    .default({ items: [] })
    .meta(
      meta({
        description:
          'Networks that may be sent to besides public addresses over https, `cidr[:port|:*]`, comma-separated. Also permits plain http to them. Without a port: 80, 443 and 8443.',
        expected: 'networks such as `10.0.0.0/8:8080`, `127.0.0.1/32:*` or `[fd00::/8]:443`',
        example: '10.20.0.0/16:8080',
        unset: 'public addresses over https only',
      }),
    ),
  EGRESS_PROXY: z
    .string()
    .refine((text) => {
      const url = URL.parse(text);
      return url !== null && /^https?:$/.test(url.protocol) && url.pathname === '/';
    })
    .optional()
    .meta(
      meta({
        description:
          'CONNECT proxy, such as Smokescreen, that every delivery goes through. `?connect=address` hands it the checked address instead of the name.',
        expected: 'a URL such as http://smokescreen.example.net:4750',
        example: 'http://smokescreen.example.net:4750',
        unset: 'deliveries go out directly',
        secret: true,
      }),
    ),
  SMTP_URL: urlOf('smtp:', 'smtps:')
    .optional()
    .meta(
      meta({
        description:
          'Mail server for news of failing and disabled endpoints. `smtp://` uses STARTTLS when the server offers it, `smtps://` TLS from the start.',
        expected: 'a URL such as smtp://user:password@mail.example.net:587',
        example: 'smtp://user:password@mail.example.net:587',
        unset: 'no mail is sent; operational events tell the same',
        secret: true,
      }),
    ),
  MAIL_FROM: z
    .string()
    .regex(MAILBOX)
    .optional()
    .meta(
      meta({
        description: 'Sender of that mail. Required with `SMTP_URL`.',
        expected: 'an address such as hooks@example.net, or Webhooks <hooks@example.net>',
        example: 'Webhooks <hooks@example.net>',
        unset: '`SMTP_URL` must be unset, too',
      }),
    ),
  POSTHASTE_SELF_CHECK: parsedBy(parseSelfCheck)
    .default([])
    .meta(
      meta({
        description:
          'Targets, `https://host[:port]`, comma-separated, that are reachable whenever our own network works. Tried, beside endpoints that lately succeeded, when many independent endpoints fail at once: while none can be reached, breakers do not trip. Connected to, never sent anything.',
        expected: 'https URLs such as https://example.com, comma-separated, 10 at most',
        example: 'https://www.google.com,https://1.1.1.1',
        unset: 'endpoints that lately succeeded are the only targets',
      }),
    ),
  LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
    .default('info')
    .meta(
      meta({
        description: 'Least important log line written.',
        expected: 'trace, debug, info, warn, error, fatal or silent',
      }),
    ),
});

export type VariableName = keyof typeof variables.shape;

export function variableMeta(name: VariableName): VariableMeta {
  return variables.shape[name].meta() as unknown as VariableMeta;
}

export interface Config {
  port: number;
  host: string;
  databaseUrl: string;
  /** For migrations and anything else that a transaction pooler can't carry. */
  databaseDirectUrl: string;
  temporal: TemporalConfig;
  temporalCli: string | undefined;
  dataDir: string;
  adminKey: string | undefined;
  /** Never undefined for the roles that need it: all, api, worker. */
  masterKeys: MasterKeys | undefined;
  grouping: 'auto' | 'never';
  maxEventBytes: number;
  retentionDays: number;
  egressAllow: EgressAllow;
  egressProxy: string | undefined;
  smtpUrl: string | undefined;
  /** Set whenever smtpUrl is. */
  mailFrom: string | undefined;
  selfCheck: readonly string[];
  logLevel: string;
}

/** Before `start` has brought up what the environment does not name. */
export type StartConfig = Omit<Config, 'databaseUrl' | 'databaseDirectUrl'> & {
  databaseUrl: string | undefined;
};

export interface TemporalConfig {
  /** Whether the environment names a server; if not, `start` brings one. */
  given: boolean;
  address: string;
  namespace: string;
  /** For NativeConnection and Connection alike. */
  connectionOptions: NativeConnectionOptions;
}

export interface Problem {
  name: string;
  expected: string;
  /** What was found, quoted; secrets are only measured. */
  got: string;
}

export type Loaded<C> = { ok: true; config: C } | { ok: false; problems: Problem[] };
type Env = Record<string, string | undefined>;

export function loadConfig(env: Env, role: 'start'): Loaded<StartConfig>;
export function loadConfig(env: Env, role: Exclude<Role, 'start'>): Loaded<Config>;
export function loadConfig(env: Env, role: Role): Loaded<StartConfig | Config> {
  // An empty value means "not set": that is how env files and container tools unset a variable.
  const given = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = variables.safeParse(given);
  const problems: Problem[] = parsed.success
    ? []
    : parsed.error.issues.map((issue) => problemOf(issue, given));
  for (const name of Object.keys(variables.shape) as VariableName[]) {
    const { requiredBy, expected } = variableMeta(name);
    if (requiredBy?.includes(role) && given[name] === undefined)
      problems.push({ name, expected, got: 'nothing' });
  }
  if (given.SMTP_URL !== undefined && given.MAIL_FROM === undefined)
    problems.push({ name: 'MAIL_FROM', expected: variableMeta('MAIL_FROM').expected, got: 'nothing' });
  const temporal = loadTemporal(given);
  if ('expected' in temporal) problems.push(temporal);
  if (!parsed.success || 'expected' in temporal || problems.length > 0) {
    return { ok: false, problems: problems.sort((a, b) => a.name.localeCompare(b.name)) };
  }
  const values = parsed.data;
  const config: StartConfig = {
    port: values.PORT,
    host: values.HOST,
    databaseUrl: values.DATABASE_URL,
    temporal,
    temporalCli: values.TEMPORAL_CLI,
    dataDir: values.POSTHASTE_DATA_DIR,
    adminKey: values.POSTHASTE_ADMIN_KEY,
    masterKeys: values.POSTHASTE_MASTER_KEYS,
    grouping: values.POSTHASTE_GROUPING,
    maxEventBytes: values.POSTHASTE_MAX_EVENT_BYTES,
    retentionDays: values.POSTHASTE_RETENTION_DAYS,
    egressAllow: values.EGRESS_ALLOW,
    egressProxy: values.EGRESS_PROXY,
    smtpUrl: values.SMTP_URL,
    mailFrom: values.MAIL_FROM,
    selfCheck: values.POSTHASTE_SELF_CHECK,
    logLevel: values.LOG_LEVEL,
  };
  return {
    ok: true,
    config: { ...config, databaseDirectUrl: values.DATABASE_DIRECT_URL ?? values.DATABASE_URL },
  };
}

function problemOf(issue: z.core.$ZodIssue, given: Record<string, string | undefined>): Problem {
  const name = String(issue.path[0]) as VariableName;
  const { expected, secret } = variableMeta(name);
  const value = given[name] ?? '';
  const got = secret ? `a value of ${value.length} characters` : JSON.stringify(value);
  // A parser's own message says which item is bad; it starts with the name, which is printed anyway.
  const detail = issue.code === 'custom' ? issue.message.replace(`${name}: `, '') : '';
  return { name, expected, got: detail === '' || detail === 'Invalid input' ? got : `${got} (${detail})` };
}

function loadTemporal(given: Record<string, string | undefined>): TemporalConfig | Problem {
  const { TEMPORAL_TLS: tls, TEMPORAL_CONFIG_FILE: file } = given;
  // The SDK's loader takes any other word for "false", and a missing file for an empty one.
  if (tls !== undefined && !/^(true|false|1|0)$/i.test(tls)) {
    return { name: 'TEMPORAL_TLS', expected: 'true or false', got: JSON.stringify(tls) };
  }
  if (file !== undefined && !existsSync(file)) {
    return { name: 'TEMPORAL_CONFIG_FILE', expected: 'the path of a TOML file', got: JSON.stringify(file) };
  }
  const usesFile = file !== undefined || given.TEMPORAL_PROFILE !== undefined;
  try {
    const { connectionOptions, namespace } = loadClientConnectConfig({
      overrideEnvVars: given as Record<string, string>,
      disableFile: !usesFile, // what someone set up for the CLI must not steer deliveries unasked
    });
    const address = connectionOptions.address ?? 'localhost:7233';
    if (!/^(\[[\da-f:.]+\]|[^\s/:]+):\d+$/i.test(address)) {
      return { name: 'TEMPORAL_ADDRESS', expected: 'host:port', got: JSON.stringify(address) };
    }
    return {
      given: connectionOptions.address !== undefined,
      address,
      namespace: namespace ?? 'default',
      connectionOptions: { ...connectionOptions, address },
    };
  } catch (error) {
    const { message } = error as Error;
    // The loader's messages name files and its own fields; whose value is quoted is to blame.
    const names = Object.keys(given).filter((name) => name.startsWith('TEMPORAL_'));
    return {
      name: names.find((name) => message.includes(`'${given[name]}'`)) ?? 'TEMPORAL_*',
      expected: 'settings that the Temporal SDK can load',
      got: message,
    };
  }
}

/** All problems as text for a person, one line each. */
export function renderProblems(problems: Problem[]): string {
  const lines = problems.map(({ name, expected, got }) => `  ${name} must be ${expected}; got ${got}`);
  return [`Posthaste can't start: ${problems.length} bad or missing settings.`, ...lines].join('\n');
}
