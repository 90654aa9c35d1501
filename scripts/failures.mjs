/**
 * Writes docs/failures.md from the table of outcome classes. Run it after changing src/domain/classes.ts:
 * `node scripts/failures.mjs`. A test compares the file with the table.
 */
import { writeFileSync } from 'node:fs';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const WHOSE = { receiver: 'receiver', sender: 'us', network: 'network', policy: 'URL policy' };
const mark = (value) => (value ? 'yes' : 'no');

/**
 * @param {Record<string, import('../src/domain/classes.ts').OutcomeInfo>} classes
 * @returns {string} the whole file
 */
export function renderFailures(classes) {
  const lines = [
    '# What can become of an attempt',
    '',
    'Every attempt ends in exactly one of these classes. This file is generated from `src/domain/classes.ts` by',
    '`node scripts/failures.mjs`; change the table, not the text.',
    '',
    '*Phase* is where the class usually arises; each attempt records its own. *Retried*: the schedule goes on.',
    '*Burns*: the attempt counts against the maximum of attempts. *Breaker*: it is evidence that the endpoint is',
    'ill. From phase `sent` on the receiver may have processed the request although no answer came; a repeat',
    'carries the same `webhook-id`.',
    '',
    '| class | phase | whose | retried | burns | breaker |',
    '|---|---|---|---|---|---|',
  ];
  for (const [name, info] of Object.entries(classes)) {
    const flags = [mark(info.retried), mark(info.burnsAttempt), mark(info.countsForBreaker)];
    lines.push(`| [\`${name}\`](#${name}) | ${[info.phase, WHOSE[info.whose], ...flags].join(' | ')} |`);
  }
  for (const [name, info] of Object.entries(classes)) {
    lines.push('', `## ${name}`, '', info.meaning, '', `**What to do:** ${info.advice}`);
  }
  return `${lines.join('\n')}\n`;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const { OUTCOME_CLASSES } = await import('../src/domain/classes.ts');
  writeFileSync(new URL('../docs/failures.md', import.meta.url), renderFailures(OUTCOME_CLASSES));
}
