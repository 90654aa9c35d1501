-- Statements are planned once per connection, mostly while `work` and the outbox are all but empty: then every index,
-- and reading the whole table, looks as cheap as a lookup by key. PostgreSQL corrects that within a minute
-- (autovacuum_naptime); a burst is over by then. So whoever sees them grow tells the planner at once.

-- Analyzes `work` and the outbox when they hold far more rows than the planner believes; the caller says how many it
-- knows of.
drop function if exists posthaste.refresh_statistics(bigint);
create or replace function posthaste.refresh_statistics(p_unfinished bigint, p_waiting bigint) returns boolean language plpgsql as $$
declare
  v_table regclass;
  v_rows bigint;
  v_believed real;
  v_done boolean := false;
begin
  if not pg_try_advisory_xact_lock(hashtext('posthaste.refresh_statistics')) then return false; end if;
  for v_table, v_rows in values ('posthaste.work'::regclass, p_unfinished), ('posthaste.outbox'::regclass, p_waiting) loop
    select c.reltuples into v_believed from pg_class c where c.oid = v_table;
    -- -1: never looked at. Then the planner assumes ten pages, which serves.
    continue when v_believed < 0 or greatest(v_rows, pg_stat_get_live_tuples(v_table)) < 5 * greatest(v_believed, 100);
    execute format('analyze (skip_locked) %s', v_table);
    v_done := true;
  end loop;
  return v_done;
end $$;
