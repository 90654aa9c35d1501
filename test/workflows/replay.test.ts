/**
 * The determinism gate: every recorded history must replay with the present workflow code. A failure here means that
 * running deliveries of the last release would break: ship the change behind a patch (docs/architecture.md, "Changing
 * a workflow"), never by recording anew. New shapes: RECORD_HISTORIES=1 npx vitest run test/workflows
 */
import { readdirSync, readFileSync } from 'node:fs';
import { historyFromJSON } from '@temporalio/common/lib/proto-utils.js';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { ensureWorkflowBundle } from '../../src/temporal/bundle.ts';

const folder = new URL('./histories/', import.meta.url);
const shapes = readdirSync(folder).filter((name) => name.endsWith('.json'));

describe('recorded histories', () => {
  it('of every shape exist', () => {
    expect(shapes.length).toBeGreaterThanOrEqual(13);
  });

  it('replay with the present workflow code', async () => {
    Runtime.install({ logger: new DefaultLogger('WARN') });
    const codePath = await ensureWorkflowBundle();
    const histories = shapes.map((name) => ({
      workflowId: name,
      history: historyFromJSON(JSON.parse(readFileSync(new URL(name, folder), 'utf8'))),
    }));
    const failed: string[] = [];
    for await (const result of Worker.runReplayHistories({ workflowBundle: { codePath } }, histories)) {
      if (result.error) failed.push(`${result.workflowId}: ${result.error.message}`);
    }
    expect(failed).toEqual([]);
  }, 60_000);
});
