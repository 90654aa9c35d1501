/**
 * How far the groups of this process are: first attempts yet to be made, per tenant. The relay of the same process reads
 * them here (src/relay/bound.ts), and counts rows only for groups that others work on.
 */
export interface GroupProgress {
  done(tenant: string): void;
  /** What is not done is no longer the group's. */
  end(): void;
  /** It broke off: from here on only the rows say how far it is. Does nothing after `end`. */
  abandon(): void;
}

export interface Progress {
  begin(dispatch: string, members: readonly { tenant: string }[]): GroupProgress;
  /** Empty: all are made. undefined: nobody here works on it, or that it has ended was told. */
  left(dispatch: string): ReadonlyMap<string, number> | undefined;
}

const MOST_ENDED = 10_000;
const NONE: ReadonlyMap<string, number> = new Map();

export function createProgress(): Progress {
  const groups = new Map<string, Map<string, number>>();
  const ended = new Set<string>();
  return {
    begin(dispatch, members) {
      const left = new Map<string, number>();
      for (const { tenant } of members) left.set(tenant, (left.get(tenant) ?? 0) + 1);
      groups.set(dispatch, left);
      return {
        done(tenant) {
          const rest = left.get(tenant)! - 1;
          if (rest > 0) left.set(tenant, rest);
          else left.delete(tenant);
        },
        abandon() {
          if (groups.get(dispatch) === left) groups.delete(dispatch);
        },
        end() {
          if (groups.get(dispatch) !== left) return;
          groups.delete(dispatch);
          if (ended.size >= MOST_ENDED) ended.clear(); // no relay here that asks
          ended.add(dispatch);
        },
      };
    },
    left: (dispatch) => groups.get(dispatch) ?? (ended.delete(dispatch) ? NONE : undefined),
  };
}
