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
    '*Phase* is where the class usually arises; each attempt records its own. *Burns*: the attempt counts against the',
    'maximum of attempts. From phase `sent` on the receiver may have processed the request although no answer came; a',
    'repeat carries the same `webhook-id`.',
    '',
    '*Pace* is how the delivery goes on: `normal` takes the next step of its schedule; `slower` does so growing three times',
    'instead of twice per step, and waits at least a minute; `minute` waits at least a minute; `soon` tries again within',
    'seconds, because nothing was wrong with the receiver; `never` ends it. The minute is never longer than the longest',
    'step of the policy. `Retry-After`, on any failing response, takes the place of `slower` and `minute`. An endpoint with',
    '`retry_4xx: false` ends at `http_4xx`.',
    '',
    '*Health* is what the attempt says about the endpoint: `failure` that it is down; `throttled` that it asks for less;',
    '`configuration` that it is up and refuses what it is sent; `neutral` says nothing about it.',
    '',
    '| class | phase | whose | pace | burns | health |',
    '|---|---|---|---|---|---|',
  ];
  for (const [name, info] of Object.entries(classes)) {
    const flags = [info.pace, mark(info.burnsAttempt), info.health];
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
