-- Statements are planned once per connection, mostly while `work` is all but empty: then every index, and reading the
-- whole table, looks as cheap as a lookup by key. PostgreSQL corrects that within a minute (autovacuum_naptime); a
-- burst is over by then. So whoever sees `work` grow tells the planner at once.

-- Analyzes `work` when it holds far more rows than the planner believes; p_rows: as many as the caller knows of.
create or replace function posthaste.refresh_statistics(p_rows bigint) returns boolean language plpgsql as $$
declare
  v_believed real;
begin
  if not pg_try_advisory_xact_lock(hashtext('posthaste.refresh_statistics')) then return false; end if;
  select c.reltuples into v_believed from pg_class c where c.oid = 'posthaste.work'::regclass;
  -- -1: never looked at. Then the planner assumes ten pages, which serves.
  if v_believed < 0 or greatest(p_rows, pg_stat_get_live_tuples('posthaste.work'::regclass)) < 5 * greatest(v_believed, 100) then return false; end if;
  analyze (skip_locked) posthaste.work;
  return true;
end $$;
