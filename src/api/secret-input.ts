/** A signing secret as callers give and see it. Called by endpoints.ts (creation) and endpoint-secrets.ts. */
import { formatSecret, generateSecret, parseSecret, publicKey, type SigningSecret } from '../egress/sign.ts';
import { fieldProblem } from '../errors.ts';

/** The caller's own secret, or a new one. @param kindField name of the field that `kind` came in. */
export function secretFrom(
  given: string | undefined,
  kind: SigningSecret['kind'] | undefined,
  usual: SigningSecret['kind'],
  kindField: string,
): SigningSecret {
  if (given === undefined) return generateSecret(kind ?? usual);
  let secret: SigningSecret;
  try {
    secret = parseSecret(given);
  } catch (error) {
    throw fieldProblem([{ pointer: '/secret', detail: (error as Error).message }]);
  }
  if (kind !== undefined && kind !== secret.kind) {
    throw fieldProblem([
      { pointer: `/${kindField}`, detail: `is ${kind}, but the secret is ${secret.kind}` },
    ]);
  }
  return secret;
}

/** A secret in clear, with its public half when it has one. */
export function secretView(id: string, secret: SigningSecret) {
  return {
    secret_id: id,
    secret: formatSecret(secret),
    secret_kind: secret.kind,
    ...(secret.kind === 'ed25519' ? { public_key: publicKey(secret) } : {}),
  };
}
