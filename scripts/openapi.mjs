/**
 * Writes openapi.json and docs/problems.md from the source. Run it after changing a route or a problem code;
 * test/api/openapi.test.ts fails when they differ. Needs Node 24: node_modules/.bin/node scripts/openapi.mjs
 */
import { writeFileSync } from 'node:fs';
import { openApiDocument, problemsMarkdown } from '../src/api/openapi.ts';

const root = new URL('../', import.meta.url);
writeFileSync(new URL('openapi.json', root), `${JSON.stringify(openApiDocument(), null, 2)}\n`);
writeFileSync(new URL('docs/problems.md', root), problemsMarkdown());
