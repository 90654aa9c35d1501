/** Keeps two set-ups of one checkout apart: the second waits for the first. Called by setup.mjs. */
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Runs `work` while holding `file`. The lock of a process that is gone does not count. */
export async function withLock(file, say, work) {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  let told = false;
  while (!take(file)) {
    if (!told) say('waiting for another set-up of this checkout …');
    told = true;
    await delay(200);
  }
  const release = () => rmSync(file, { force: true });
  process.once('exit', release);
  try {
    return await work();
  } finally {
    process.off('exit', release);
    release();
  }
}

function take(file) {
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    if (!holderIsAlive(file)) rmSync(file, { force: true });
    return false;
  }
}

function holderIsAlive(file) {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    if (pid === 0) return statSync(file).mtimeMs > Date.now() - 10_000; // being written just now
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}
