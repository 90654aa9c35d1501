-- Old days go as whole partitions. Called by a relay's upkeep (src/relay/retention.ts), one process at a time.
--
-- What must outlive its day moves first: events that the outbox, work rows or dead letters still need go to kept_events; rows of
-- deliveries that stand as dead letters, fan-outs of kept events and attempts of unfinished deliveries go to the
-- default partitions, where every reader finds them. A dead letter stands until it is resent.

-- Moves the events of a time that are still needed. Moved, not copied: an event is never in two places.
create or replace function posthaste.keep_bodies(p_from timestamptz, p_until timestamptz) returns bigint language plpgsql volatile as $$
declare
  v_moved bigint;
begin
  with wanted as materialized (
    select w.tenant, w.event_at, w.event from posthaste.work w where w.event_at >= p_from and w.event_at < p_until
    union
    select x.tenant, x.event_at, x.event from posthaste.dead_letters x where x.event_at >= p_from and x.event_at < p_until
    union
    select o.tenant, o.event_at, o.event from posthaste.outbox o where o.event_at >= p_from and o.event_at < p_until
  ), moved as (
    delete from posthaste.events v using wanted n
    where v.tenant = n.tenant and v.created_at = n.event_at and v.id = n.event and v.created_at >= p_from and v.created_at < p_until
    returning v.tenant, v.created_at, v.id, v.type, v.raw, v.content_type, v.version, v.occurred_at, v.body
  )
  insert into posthaste.kept_events (tenant, created_at, id, type, raw, content_type, version, occurred_at, body)
  select m.tenant, m.created_at, m.id, m.type, m.raw, m.content_type, m.version, m.occurred_at, m.body from moved m;
  get diagnostics v_moved = row_count;
  return v_moved;
end $$;

-- The first moment that is kept; null: everything is.
create or replace function posthaste.kept_from() returns timestamptz language sql stable as $$
  select case when s.retention_days > 0 then ((now() at time zone 'UTC')::date - s.retention_days)::timestamp at time zone 'UTC' end
  from posthaste.settings s
$$;

-- The oldest day that has outlived its retention, or null.
create or replace function posthaste.oldest_day() returns date language sql stable as $$
  select min(to_date(right(c.relname, 8), 'YYYYMMDD')) from pg_class c
  where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'r'
    and c.relname ~ '^(events|event_fanouts|deliveries|attempts)_[0-9]{8}$'
    and to_date(right(c.relname, 8), 'YYYYMMDD') < (posthaste.kept_from() at time zone 'UTC')::date
$$;

-- One day's partitions, all in one transaction. False: someone used the tables just now, or another process is at it;
-- come back later. Nobody waits long: dropping needs every reader of the four tables to be out for a moment.
create or replace function posthaste.drop_day(p_day date) returns boolean language plpgsql volatile set lock_timeout = '300ms' as $$
declare
  v_from timestamptz := p_day::timestamp at time zone 'UTC';
  v_until timestamptz := (p_day + 1)::timestamp at time zone 'UTC';
  v_parent text;
  v_part text;
begin
  if v_until > coalesce(posthaste.kept_from(), '-infinity') or not pg_try_advisory_xact_lock(7407302) then
    return false;
  end if;
  begin
    lock table only posthaste.events, only posthaste.event_fanouts, only posthaste.deliveries, only posthaste.attempts in access exclusive mode;
  exception when lock_not_available or deadlock_detected then
    return false;
  end;
  -- What was resent since the call before this one.
  perform posthaste.keep_bodies(v_from, v_until);
  foreach v_parent in array array['events', 'event_fanouts', 'deliveries', 'attempts'] loop
    v_part := v_parent || '_' || to_char(p_day, 'YYYYMMDD');
    continue when to_regclass('posthaste.' || v_part) is null;
    execute format('alter table posthaste.%I detach partition posthaste.%I', v_parent, v_part);
    case v_parent
      when 'event_fanouts' then
        execute format('insert into posthaste.event_fanouts select f.* from posthaste.kept_events k
          join posthaste.%I f on f.tenant = k.tenant and f.event_at = k.created_at and f.event = k.id
          where k.created_at >= $1 and k.created_at < $2', v_part) using v_from, v_until;
      when 'deliveries' then
        execute format('insert into posthaste.deliveries select d.* from posthaste.dead_letters x join posthaste.%I d on d.id = x.delivery
          where x.delivery >= ''dlv_'' || posthaste.id_time($1) and x.delivery < ''dlv_'' || posthaste.id_time($2)', v_part) using v_from, v_until;
      when 'attempts' then
        execute format('insert into posthaste.attempts select a.* from posthaste.work w join posthaste.%I a on a.delivery = w.delivery
          where w.created_at < $1', v_part) using v_until;
      else null;
    end case;
    execute format('drop table posthaste.%I', v_part);
  end loop;
  return true;
end $$;

-- Rows that no partition's end takes along, up to p_limit of each kind: days that sat in a default partition, what was
-- kept and is needed no more, notices and replays of old, keys of events that are gone. Answers how many went.
create or replace function posthaste.purge_old(p_limit int) returns bigint language plpgsql volatile as $$
declare
  v_from timestamptz := posthaste.kept_from();
  v_gone bigint := 0;
  v_rows bigint;
begin
  if v_from is null or not pg_try_advisory_xact_lock(7407302) then
    return 0;
  end if;
  perform posthaste.keep_bodies(o.oldest, v_from) from (select min(created_at) as oldest from posthaste.events_default) o where o.oldest < v_from;
  delete from posthaste.events_default v where v.ctid = any (array(
    select o.ctid from posthaste.events_default o where o.created_at < v_from limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.attempts_default a where a.ctid = any (array(
    select o.ctid from posthaste.attempts_default o
    where o.started_at < v_from and not exists (select from posthaste.work w where w.delivery = o.delivery) limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  -- A delivery that was resent is as young as its end.
  delete from posthaste.deliveries_default d where d.ctid = any (array(
    select o.ctid from posthaste.deliveries_default o
    where o.created_at < v_from and o.finished_at < v_from
      and not exists (select from posthaste.dead_letters x where x.delivery = o.id) limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.kept_events k where k.ctid = any (array(
    select o.ctid from posthaste.kept_events o
    where not exists (select from posthaste.work w where w.tenant = o.tenant and w.event = o.id and w.event_at = o.created_at)
      and not exists (select from posthaste.dead_letters x where x.tenant = o.tenant and x.event = o.id and x.event_at = o.created_at)
      and not exists (select from posthaste.outbox q where q.tenant = o.tenant and q.event = o.id and q.event_at = o.created_at)
      and not exists (select from posthaste.deliveries_default d where d.tenant = o.tenant and d.event = o.id and d.event_at = o.created_at)
    limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.event_fanouts_default f where f.ctid = any (array(
    select o.ctid from posthaste.event_fanouts_default o
    where o.event_at < v_from
      and not exists (select from posthaste.kept_events k where k.tenant = o.tenant and k.created_at = o.event_at and k.id = o.event) limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.notices n where n.id = any (array(
    select o.id from posthaste.notices o where o.at < v_from order by o.id limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.replays r where r.id = any (array(
    select o.id from posthaste.replays o where o.created_at < v_from and o.state <> 'running' limit p_limit));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  delete from posthaste.event_keys y where y.ctid = any (array(
    select o.ctid from posthaste.event_keys o
    where o.created_at < v_from
      and not exists (select from posthaste.kept_events k where k.tenant = o.tenant and k.created_at = o.created_at and k.id = o.id) limit p_limit));
  get diagnostics v_rows = row_count;
  return v_gone + v_rows;
end $$;
