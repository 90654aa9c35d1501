/**
 * Where a Posthaste process spent its time: V8's CPU profiles, self time by module and by function. `node --cpu-prof`
 * writes one file per thread when the process stops.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Node {
  id: number;
  children?: number[];
  callFrame: { functionName: string; url: string; lineNumber: number };
}
interface Profile {
  nodes: Node[];
  startTime: number;
  endTime: number;
  samples: number[];
  timeDeltas: number[];
}

export interface ProfileSummary {
  /** Seconds that were not idle. */
  busySeconds: number;
  modules: { name: string; share: number }[];
  functions: { name: string; module: string; share: number }[];
  /** The same with what each function called, so that shares overlap. */
  inclusive: { name: string; module: string; share: number }[];
}

/** `src/relay/relay.ts`, `pg`, `undici`, `temporal`, `node`, `gc` … */
export function moduleOf(functionName: string, url: string): string {
  if (functionName === '(garbage collector)') return 'gc';
  if (functionName === '(idle)') return 'idle';
  if (functionName === '(program)') return 'native (sockets, TLS, system calls)';
  const installed = /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules)/.exec(url)?.[1];
  if (installed !== undefined)
    return /^@temporalio/.test(installed) ? 'temporal' : /^pg(-|$)/.test(installed) ? 'pg' : installed;
  const ours = /\/dist\/(.+)\.js$/.exec(url)?.[1];
  if (ours !== undefined) return ours.startsWith('bundles/') ? 'workflows (bundle)' : `src/${ours}.ts`;
  if (url.startsWith('node:')) return url.replace(/^(node:internal\/[^/]+|node:[^/]+).*/, '$1');
  return url === '' ? 'native (built-in functions)' : 'other';
}

/** @param between only samples in this stretch, ms of clock.ts (V8 stamps them with the same clock). */
export function summarise(profile: Profile, between?: { from: number; to: number }): ProfileSummary {
  const byId = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(
    profile.nodes.flatMap(({ id, children }) => (children ?? []).map((child) => [child, id] as const)),
  );
  const modules = new Map<string, number>();
  const functions = new Map<string, { module: string; us: number }>();
  const inclusive = new Map<string, { module: string; us: number }>();
  const add = (to: Map<string, { module: string; us: number }>, { callFrame }: Node, us: number): void => {
    const { functionName, url } = callFrame;
    const name = nameOf(callFrame);
    to.set(name, { module: moduleOf(functionName, url), us: (to.get(name)?.us ?? 0) + us });
  };
  let busy = 0;
  let at = profile.startTime;
  profile.samples.forEach((id, i) => {
    const us = profile.timeDeltas[i] ?? 0;
    at += us;
    if (between !== undefined && (at / 1_000 < between.from || at / 1_000 > between.to)) return;
    const node = byId.get(id)!;
    const module = moduleOf(node.callFrame.functionName, node.callFrame.url);
    if (module === 'idle') return;
    busy += us;
    modules.set(module, (modules.get(module) ?? 0) + us);
    add(functions, node, us);
    const seen = new Set<string>(); // a recursive function counts once
    for (let above: number | undefined = id; above !== undefined; above = parents.get(above)) {
      const name = nameOf(byId.get(above)!.callFrame);
      if (!seen.has(name)) add(inclusive, byId.get(above)!, us);
      seen.add(name);
    }
  });
  const share = (us: number): number => us / Math.max(1, busy);
  const ranked = (of: Map<string, { module: string; us: number }>) =>
    [...of]
      .map(([name, { module, us }]) => ({ name, module, share: share(us) }))
      .sort((a, b) => b.share - a.share);
  return {
    busySeconds: busy / 1e6,
    modules: [...modules].map(([name, us]) => ({ name, share: share(us) })).sort((a, b) => b.share - a.share),
    functions: ranked(functions),
    inclusive: ranked(inclusive).filter(({ name }) => name !== '(root)'),
  };
}

function nameOf({ functionName, url, lineNumber }: Node['callFrame']): string {
  const place = url === '' ? '' : ` ${url.split('/').at(-1)}:${lineNumber + 1}`;
  return `${functionName || '(anonymous)'}${place}`;
}

/**
 * One summary per process in the folder, of its main thread, the busiest first. What Temporal's native threads use is in
 * no V8 profile: it is the difference to the process's CPU.
 */
export function readProfiles(
  folder: string,
  between?: { from: number; to: number },
): (ProfileSummary & { process: number })[] {
  return readdirSync(folder)
    .flatMap((name) => {
      // CPU.<day>.<time>.<process>.<thread>.<n>.cpuprofile; thread 0 is the main one, the others run workflows
      const [, process] = /^CPU\.\d+\.\d+\.(\d+)\.0\.\d+\.cpuprofile$/.exec(name) ?? [];
      if (process === undefined) return [];
      const profile = JSON.parse(readFileSync(join(folder, name), 'utf8')) as Profile;
      return [{ ...summarise(profile, between), process: Number(process) }];
    })
    .filter(({ busySeconds }) => busySeconds > 0)
    .sort((a, b) => b.busySeconds - a.busySeconds);
}

export function profileText(summary: ProfileSummary, deliveries: number): string {
  const us = (share: number): string =>
    ((share * summary.busySeconds * 1e6) / Math.max(1, deliveries)).toFixed(1);
  const rows = (list: readonly { name: string; share: number }[], most: number): string[] =>
    list
      .slice(0, most)
      .map(
        ({ name, share }) => `${us(share).padStart(8)} µs ${(share * 100).toFixed(1).padStart(5)} %  ${name}`,
      );
  return [
    `busy ${summary.busySeconds.toFixed(2)} s, self time per delivery by module:`,
    ...rows(summary.modules, 25),
    'by function:',
    ...rows(summary.functions.map(labelled), 40),
    'with what they call:',
    ...rows(summary.inclusive.map(labelled), 60),
  ].join('\n');
}

const labelled = ({ name, module, share }: { name: string; module: string; share: number }) => ({
  name: `${name}  [${module}]`,
  share,
});
