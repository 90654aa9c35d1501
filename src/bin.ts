#!/usr/bin/env -S node --max-semi-space-size=32
/** The command `posthaste`: says which Node is needed before anything is loaded that an older one can't. */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(
    `posthaste: Node 22.19 or newer is needed, this is ${process.versions.node}; npm start and npx posthaste bring their own.\n`,
  );
  process.exit(1);
}
await import('./main.ts');
