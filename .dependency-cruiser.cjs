/**
 * Who may import whom: the house rules as code. `npm run check` and test/architecture.test.ts apply them to src.
 * Each folder names what it may use; anything else is a violation, so a new kind of import is a decision made here.
 */
const ROOT_FILES = '^src/(errors|ids|log|metrics|secrets)\\.ts$';
/** What puts everything together: the other files directly in src. */
const COMPOSITION = '^src/(?!(config|errors|ids|log|metrics|secrets)\\.ts$)[^/]+\\.ts$';
const CONFIG = '^src/config\\.ts$';
const CONTRACT = '^src/workflows/contract\\.ts$';
const NODE =
  '^(node:)?(assert|async_hooks|buffer|child_process|crypto|dns|events|fs|http|https|module|net|os|path|perf_hooks|process|stream|timers|tls|url|util|worker_threads|zlib)(/|$)';
const npm = (...names) => `^node_modules/(${names.join('|')})/`;

/** Files under `from` may import `allowed` and each other; `types` only by `import type`. */
function folder(name, comment, { from, allowed, types = [] }) {
  const every = [from, ...allowed];
  return [
    { name, comment, severity: 'error', from: { path: from }, to: { pathNot: [...every, ...types] } },
    ...(types.length === 0
      ? []
      : [
          {
            name: `${name}-types`,
            comment: `${comment} (by \`import type\` only)`,
            severity: 'error',
            from: { path: from },
            to: { path: types, pathNot: every, dependencyTypesNot: ['type-only'] },
          },
        ]),
  ];
}

module.exports = {
  forbidden: [
    ...folder('domain-is-pure', 'Decisions are pure functions: no clock, no randomness, no npm, no Node.', {
      from: '^src/domain/',
      allowed: [],
    }),
    ...folder('workflows-are-deterministic', 'Workflow code runs in the sandbox: domain and the SDK only.', {
      from: '^src/workflows/',
      allowed: ['^src/domain/', npm('@temporalio/workflow', '@temporalio/common')],
      types: ['^src/activities/'],
    }),
    ...folder('activities', 'Activities use domain, db and egress; Temporal’s client comes as an argument.', {
      from: '^src/activities/',
      allowed: [
        '^src/(domain|db|egress)/',
        CONTRACT,
        ROOT_FILES,
        NODE,
        npm('@temporalio/(activity|common)', '(lru-cache|p-limit)'),
      ],
      types: ['^src/temporal/', CONFIG],
    }),
    ...folder(
      'egress',
      'The only code that touches a customer’s network knows nothing of ours but the rules.',
      {
        from: '^src/egress/',
        allowed: ['^src/domain/', ROOT_FILES, NODE, npm('undici', 'lru-cache')],
      },
    ),
    ...folder('relay', 'The relay moves rows and starts workflows; it sends nothing.', {
      from: '^src/relay/',
      allowed: ['^src/(domain|db|temporal)/', CONTRACT, ROOT_FILES, NODE],
      types: [CONFIG],
    }),
    ...folder('db', 'All SQL, and nothing but SQL.', {
      from: '^src/db/',
      allowed: ['^src/domain/', ROOT_FILES, NODE, npm('pg', '@types/pg')],
    }),
    ...folder(
      'temporal',
      'Connection, workers, budget: handed what they run, so they know neither db nor egress.',
      {
        from: '^src/temporal/',
        allowed: [CONTRACT, ROOT_FILES, NODE, npm('@temporalio/[^/]+')],
        types: ['^src/(domain|activities)/', CONFIG],
      },
    ),
    ...folder('api', 'The API reads and writes rows and pokes workflows; it never sends to a customer.', {
      from: '^src/api/',
      allowed: [
        '^src/(domain|db|temporal)/',
        '^src/egress/(sign|tls|target)\\.ts$',
        CONTRACT,
        ROOT_FILES,
        NODE,
        npm('hono', '@hono/[^/]+', 'zod', 'lru-cache'),
      ],
      types: [CONFIG],
    }),
    {
      name: 'ui-on-view-models',
      comment: 'Pages show view models of the API; they do not query.',
      severity: 'error',
      from: { path: '^src/api/ui/' },
      to: { path: '^src/db/' },
    },
    ...folder('cli', 'Commands talk to the API as users do.', {
      from: '^src/cli/',
      allowed: ['^src/(client|receiver)/', ROOT_FILES, NODE, npm('commander')],
    }),
    ...folder('client-stands-alone', 'Imported by users: nothing of ours comes along.', {
      from: '^src/client/',
      allowed: [NODE],
    }),
    ...folder('receiver-stands-alone', 'Imported by users: nothing of ours comes along.', {
      from: '^src/receiver/',
      allowed: [NODE],
    }),
    {
      name: 'temporal-client-stands-alone',
      comment: 'Imported into users’ workflow bundles: names and types only.',
      severity: 'error',
      from: { path: '^src/temporal-client/index\\.ts$' },
      to: { pathNot: CONTRACT, dependencyTypesNot: ['type-only'] },
    },
    ...folder('temporal-client', 'What users’ own Temporal workers and clients import.', {
      from: '^src/temporal-client/',
      allowed: [CONTRACT, '^src/activities/send-event\\.ts$', '^src/db/pool\\.ts$', NODE],
      types: [npm('@temporalio/common')],
    }),
    ...folder('demo', 'The demo plays a customer and a producer, with what they have.', {
      from: '^src/demo/',
      allowed: ['^src/(client|receiver)/', NODE],
    }),
    ...folder('embedded', 'The servers for first runs and tests know nothing of webhooks.', {
      from: '^src/embedded/',
      allowed: [NODE, npm('pg', '@types/pg', '@temporalio/(client|common)')],
    }),
    ...folder('root-files', 'Cross-cutting files lean on nothing but the domain and each other.', {
      from: '^src/(config|errors|ids|log|metrics|secrets)\\.ts$',
      allowed: ['^src/domain/', NODE, npm('pino', 'prom-client', 'zod', '@temporalio/envconfig')],
      types: [npm('@temporalio/(common|worker)')],
    }),
    {
      name: 'config-is-read-once',
      comment: 'The composition root reads the environment; everybody else is handed what they need.',
      severity: 'error',
      from: { pathNot: COMPOSITION },
      to: { path: CONFIG, dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'composition-root-is-the-top',
      comment: 'Nothing below imports what puts everything together.',
      severity: 'error',
      from: { pathNot: COMPOSITION },
      to: { path: COMPOSITION },
    },
    {
      name: 'no-circle',
      comment: 'A circle has no reading order.',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'declared-packages-only',
      comment: 'What src imports must be a dependency in package.json, not a guest of node_modules.',
      severity: 'error',
      from: {},
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'resolvable',
      comment: 'An import that leads nowhere.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    preserveSymlinks: true,
    tsConfig: { fileName: 'tsconfig.json' },
    tsPreCompilationDeps: true, // types are dependencies of a reader, too
    enhancedResolveOptions: {
      conditionNames: ['import', 'require', 'node', 'types'],
      extensions: ['.ts', '.tsx', '.js'],
    },
  },
};
