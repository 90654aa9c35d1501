/** API keys: made, listed, revoked. The secret is in the answer of its creation and nowhere else. */
import { z } from '@hono/zod-openapi';
import { insertKey, type KeyRow, listKeys, revokeKey } from '../db/keys.ts';
import { ProblemError } from '../errors.ts';
import { ADMIN_KEY_ID, type Authenticator, generateKey } from './auth.ts';
import type { ApiDeps } from './deps.ts';
import { noKey } from './missing.ts';
import { ID_FORM, paging } from './paging.ts';
import { type BoundRoute, bind, PAGE, route } from './route.ts';
import { page, pageOf, text, timestamp } from './schemas.ts';

const Key = z
  .object({
    id: z.string(),
    name: z.string(),
    last4: z.string().openapi({ description: 'The last characters of the key' }),
    created_at: timestamp,
  })
  .openapi('Key');
const base = { tag: 'Keys' } as const;

export const keySpecs = {
  create: route({
    ...base,
    method: 'post',
    path: '/v1/keys',
    id: 'createKey',
    summary: 'Make an API key',
    body: z.strictObject({ name: text(128).min(1) }).openapi('KeyInput'),
    status: 201,
    answer: 'The key, shown this once',
    schema: Key.extend({ key: z.string().openapi({ example: 'phk_…' }) }).openapi('NewKey'),
  }),
  list: route({
    ...base,
    method: 'get',
    path: '/v1/keys',
    id: 'listKeys',
    summary: 'List API keys, oldest first',
    query: z.strictObject(PAGE),
    status: 200,
    answer: 'A page of keys',
    schema: page(Key),
    problems: ['cursor_invalid'],
  }),
  revoke: route({
    ...base,
    method: 'delete',
    path: '/v1/keys/{key}',
    id: 'revokeKey',
    summary: 'Revoke an API key',
    description: 'It is refused everywhere within a second.',
    status: 204,
    answer: 'Revoked',
    problems: ['key_protected'],
  }),
};

export function keyRoutes(deps: ApiDeps, auth: Authenticator): BoundRoute[] {
  const { db } = deps;
  return [
    bind(keySpecs.create, async ({ body }) => {
      const { key, ...made } = generateKey();
      const row = await insertKey(db, { ...made, name: body.name });
      return { status: 201, json: { ...view(row), key } };
    }),
    bind(keySpecs.list, async ({ query }) => {
      const { after, cursor } = paging(query.cursor, 'keys', [], [ID_FORM]);
      const rows = await listKeys(db, after?.[0] ?? null, query.limit + 1);
      return { status: 200, json: pageOf(rows, query.limit, view, (last) => cursor([last.id])) };
    }),
    bind(keySpecs.revoke, async ({ param }) => {
      const id = param('key');
      if (id === ADMIN_KEY_ID)
        throw new ProblemError('key_protected', 'the admin key cannot be revoked here');
      if (!(await revokeKey(db, id))) noKey();
      auth.forget(id);
      return { status: 204 };
    }),
  ];
}

function view(row: KeyRow) {
  return { id: row.id, name: row.name, last4: row.last4, created_at: row.created_at };
}
