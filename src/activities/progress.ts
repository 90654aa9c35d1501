/**
 * How far the groups of this process are: first attempts yet to be made, per tenant. The relay of the same process reads
 * them here (src/relay/bound.ts), and counts rows only for groups that others work on.
 */
export interface GroupProgress {
  done(tenant: string): void;
  end(): void;
}

export interface Progress {
  begin(dispatch: string, members: readonly { tenant: string }[]): GroupProgress;
  /** undefined: nobody here works on it. */
  left(dispatch: string): ReadonlyMap<string, number> | undefined;
}

export function createProgress(): Progress {
  const groups = new Map<string, Map<string, number>>();
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
        end() {
          if (groups.get(dispatch) === left) groups.delete(dispatch);
        },
      };
    },
    left: (dispatch) => groups.get(dispatch),
  };
}
