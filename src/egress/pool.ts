/**
 * Who gets a connection. A pool belongs to one endpoint (tenant, TLS profile, origin) and lives as long as it has
 * a socket or a waiter, so 100,000 cold endpoints cost nothing between their posts. All pools share one budget of
 * sockets. Called by attempt.ts.
 */
import type { Link } from './link.ts';

/** Somebody who wants to send one request. */
export interface Waiter {
  /** Already answered or given up: skip it. */
  readonly settled: boolean;
  /** Only a new connection will do. */
  readonly fresh: boolean;
  /** Here is a warm link; it is yours until giveBack or discard. */
  useLink(link: Link): void;
  /** You may open one connection; report it by adopt() or by abandon(). */
  openLink(): void;
}

/** Bounds for all pools of one egress together. */
export interface PoolLimits {
  /** Sockets at once, connecting ones included. */
  readonly maxSockets: number;
  /** Idle sockets of endpoints that were posted to once; the oldest goes first. */
  readonly maxColdIdle: number;
  /** Idle sockets of endpoints that showed repeated use. */
  readonly maxHotIdle: number;
}

/** One endpoint's links. Only Pools changes it. */
export interface Pool {
  readonly key: string;
  revision: number;
  /** Reserved, connecting and connected. */
  open: number;
  /** A second post came while a socket was open. */
  hot: boolean;
  readonly idle: Link[];
  readonly waiters: Waiter[];
}

/** All pools of an egress. */
export class Pools {
  readonly #pools = new Map<string, Pool>();
  readonly #limits: PoolLimits;
  readonly #coldIdle = new Set<Link>();
  readonly #hotIdle = new Set<Link>();
  readonly #poolOf = new WeakMap<Link, Pool>();
  readonly #links = new Set<Link>();
  /** Have a place in their pool and wait for one of the shared sockets. */
  readonly #gate: { waiter: Waiter; pool: Pool }[] = [];
  #sockets = 0;
  #opened = 0;

  constructor(limits: PoolLimits) {
    this.#limits = limits;
  }

  /** The pool of a key. An older revision never displaces a newer one. */
  get(key: string, revision: number): Pool {
    let pool = this.#pools.get(key);
    if (!pool) {
      pool = { key, revision, open: 0, hot: false, idle: [], waiters: [] };
      this.#pools.set(key, pool);
    } else {
      pool.hot = true;
      if (revision > pool.revision) {
        pool.revision = revision;
        for (const link of pool.idle.splice(0)) this.#drop(link);
      }
    }
    return pool;
  }

  /**
   * Serves the waiter now or queues it. A warm link is used only when it has exactly the wanted revision.
   * @param connections cap of this endpoint.
   */
  enter(pool: Pool, waiter: Waiter, revision: number, connections: number): void {
    const link = waiter.fresh || revision !== pool.revision ? undefined : this.#takeIdle(pool);
    if (link) {
      waiter.useLink(link);
    } else if (pool.open < connections) {
      this.#reserve(pool, waiter);
    } else {
      if (waiter.fresh) pool.waiters.unshift(waiter);
      else pool.waiters.push(waiter);
      // Idle links are of no use to this post but hold its place; a closed one makes room.
      const idle = pool.idle.pop();
      if (idle) this.#drop(idle);
    }
  }

  /** The connection that openLink() permitted exists. */
  adopt(pool: Pool, link: Link): void {
    this.#opened++;
    this.#poolOf.set(link, pool);
    this.#links.add(link);
  }

  /** The connection that openLink() permitted will not come. */
  abandon(pool: Pool): void {
    this.#freeSocket();
    this.#freePlace(pool);
  }

  /** The request is done and the link may serve another. */
  giveBack(link: Link): void {
    const pool = this.#poolOf.get(link) as Pool;
    const waiter = firstWaiter(pool);
    if (link.revision !== pool.revision || waiter?.fresh || !link.usable(performance.now())) {
      link.destroy();
    } else if (waiter) {
      pool.waiters.shift();
      // Not from within the parser that is still reading the response.
      queueMicrotask(() => waiter.useLink(link));
    } else if (this.#gate.length > 0) {
      // Another endpoint waits for a socket of the shared budget.
      link.destroy();
    } else {
      this.#rest(pool, link);
    }
  }

  /** To be called when the socket of an adopted link has closed. */
  closed(link: Link): void {
    const pool = this.#poolOf.get(link);
    if (!pool || !this.#links.delete(link)) return;
    this.#forgetIdle(link);
    const at = pool.idle.indexOf(link);
    if (at >= 0) pool.idle.splice(at, 1);
    this.#freeSocket();
    this.#freePlace(pool);
  }

  /** Removes a waiter that gave up. */
  leave(pool: Pool, waiter: Waiter): void {
    const at = pool.waiters.indexOf(waiter);
    if (at >= 0) pool.waiters.splice(at, 1);
  }

  /** Closes every socket, idle or not. */
  destroyAll(): void {
    for (const link of this.#links) link.destroy();
  }

  stats(): { pools: number; openSockets: number; idleSockets: number; queued: number; opened: number } {
    let queued = this.#gate.length;
    for (const pool of this.#pools.values()) queued += pool.waiters.length;
    const idleSockets = this.#coldIdle.size + this.#hotIdle.size;
    return { pools: this.#pools.size, openSockets: this.#sockets, idleSockets, queued, opened: this.#opened };
  }

  #takeIdle(pool: Pool): Link | undefined {
    const now = performance.now();
    for (let link = pool.idle.pop(); link; link = pool.idle.pop()) {
      this.#forgetIdle(link);
      if (link.usable(now)) return link;
      link.destroy();
    }
    return undefined;
  }

  #rest(pool: Pool, link: Link): void {
    pool.idle.push(link);
    const set = pool.hot ? this.#hotIdle : this.#coldIdle;
    const max = pool.hot ? this.#limits.maxHotIdle : this.#limits.maxColdIdle;
    set.add(link);
    if (set.size > max) this.#dropOldest(set);
  }

  #dropOldest(set: Set<Link>): boolean {
    const oldest = set.values().next().value;
    if (!oldest) return false;
    const pool = this.#poolOf.get(oldest) as Pool;
    const at = pool.idle.indexOf(oldest);
    if (at >= 0) pool.idle.splice(at, 1);
    this.#drop(oldest);
    return true;
  }

  #drop(link: Link): void {
    this.#forgetIdle(link);
    link.destroy();
  }

  #forgetIdle(link: Link): void {
    if (!this.#hotIdle.delete(link)) this.#coldIdle.delete(link);
  }

  #reserve(pool: Pool, waiter: Waiter): void {
    pool.open++;
    this.#pools.set(pool.key, pool);
    this.#gate.push({ waiter, pool });
    this.#openGate();
    // Idle sockets are worth less than a post that waits; the gate opens when the closed socket is gone.
    if (this.#gate.length > 0 && !this.#dropOldest(this.#coldIdle)) this.#dropOldest(this.#hotIdle);
  }

  #freeSocket(): void {
    this.#sockets--;
    this.#openGate();
  }

  #openGate(): void {
    while (this.#sockets < this.#limits.maxSockets) {
      const next = this.#gate.shift();
      if (!next) return;
      if (next.waiter.settled) {
        this.#freePlace(next.pool);
      } else {
        this.#sockets++;
        next.waiter.openLink();
      }
    }
  }

  #freePlace(pool: Pool): void {
    pool.open--;
    const waiter = firstWaiter(pool);
    if (waiter) {
      pool.waiters.shift();
      this.#reserve(pool, waiter);
    }
    if (pool.open === 0 && this.#pools.get(pool.key) === pool) this.#pools.delete(pool.key);
  }
}

/** The first waiter that still wants something; it stays in the queue. */
function firstWaiter(pool: Pool): Waiter | undefined {
  while (pool.waiters[0]?.settled) pool.waiters.shift();
  return pool.waiters[0];
}
