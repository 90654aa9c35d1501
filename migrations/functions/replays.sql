-- Replays: docs/adr/0004-replay.md. A page is one transaction: matches after the cursor are moved by resend_many or
-- cancel_many (operators.sql) and the cursor goes behind them. So each match is looked at once per replay.
--
-- Lock order: the replay, fan-outs, endpoints, work.

-- The rows after the cursor in the order of pages, and which of them match. At most p_limit are looked at, so that a page
-- takes its time whatever the filter; a filter that matches little goes through many pages.
create or replace function posthaste.replay_candidates(r posthaste.replays, p_limit int)
returns table (id text, at timestamptz, hit boolean) language plpgsql stable set enable_seqscan = off set jit = off as $$
declare
  v_until timestamptz := least(r.until, r.created_at);
  v_scope text := case when r.endpoint is null then '%1$s.tenant = $1' else '%1$s.endpoint = $2 and %1$s.tenant = $1' end;
  v_hit text := '($3::text is null or %1$s.event = $3) and ($4::text is null or %1$s.event_type = $4) and ($5::text[] is null or %1$s.state = any ($5))
    and ($6::int is null or %1$s.last_status = $6) and ($7::text is null or %1$s.last_class = $7)
    and %1$s.kind <> ''test''';
begin
  -- Planned for the values at hand: each of these is one index scan from the cursor on.
  if r.phase = 'missed' then
    return query execute $q$
      select f.event, f.event_at, v.id is not null
        and not exists (select from posthaste.work w where w.endpoint = $2 and w.event = f.event)
        and not exists (select from posthaste.deliveries d where d.event = f.event and d.tenant = $1 and d.endpoint = $2)
      from (
        select f.event, f.event_at from posthaste.event_fanouts f
        where f.tenant = $1 and f.event_at >= greatest($3, $4) and (f.event_at, f.event) > ($4, $5) and f.event_at < $6
        order by f.event_at, f.event limit $7
      ) f
      join posthaste.endpoints e on e.id = $2
      left join posthaste.events v on v.tenant = $1 and v.created_at = f.event_at and v.id = f.event and not v.test and (e.event_types is null or v.type = any (e.event_types))
      order by f.event_at, f.event $q$
      using r.tenant, r.endpoint, r.since, r.cursor_at, r.cursor_id, v_until, p_limit;
  elsif r.source = 'dead_letters' then
    return query execute $q$
      select x.delivery, x.died_at, ($2::text is null or x.endpoint = $2) and ($3::text is null or x.event_type = $3)
      from posthaste.dead_letters x
      where x.tenant = $1 and x.died_at >= greatest($4, $5) and (x.died_at, x.delivery) > ($5, $6) and x.died_at < $7
      order by x.died_at, x.delivery limit $8 $q$
      using r.tenant, r.endpoint, r.event_type, r.since, r.cursor_at, r.cursor_id, v_until, p_limit;
  else
    return query execute 'select * from ((select w.delivery as id, w.created_at as at, ' || format(v_hit, 'w') || ' from posthaste.work w where '
        || format(v_scope, 'w') || ' and w.delivery > $8 and w.delivery < $9 order by w.delivery limit $10)
      union all (select d.id, d.created_at, ' || format(v_hit, 'd') || ' from posthaste.deliveries d where '
        || format(v_scope, 'd') || ' and d.id > $8 and d.id < $9 and d.created_at >= $11 and d.created_at <= $12 order by d.id limit $10)) x order by 1 limit $10'
      using r.tenant, r.endpoint, r.event, r.event_type, r.states, r.last_status, r.last_class,
        -- Ids are in the order of time: what was made before this replay, within its range.
        greatest(r.cursor_id, 'dlv_' || posthaste.id_time(greatest(r.since, 'epoch'))), least('dlv_' || posthaste.id_time(greatest(r.until, case when r.until is not null then 'epoch'::timestamptz end)), 'dlv_' || posthaste.id_time(r.created_at + interval '1 millisecond')),
        p_limit, greatest(r.since, case when r.cursor_id = '' then '-infinity' else posthaste.id_at(r.cursor_id) end), v_until + interval '1 millisecond';
  end if;
end $$;

-- How many rows a page may move now: the tenant's share of what may be due at once, and the endpoint's bound.
create or replace function posthaste.replay_room(p_tenant text, p_endpoint text) returns int language plpgsql stable
set enable_seqscan = off set jit = off as $$
declare
  v_share int;
  v_room int;
begin
  select greatest(50, 1000 / greatest(1, count(distinct x.tenant))) into v_share
  from posthaste.replays x where x.state = 'running' and x.action = 'resend';
  select v_share - count(*) into v_room from (
    select 1 from posthaste.work w where w.tenant = p_tenant and w.lane = 'bulk' and w.state = 'ready' limit v_share) x;
  if p_endpoint is not null then
    select least(v_room, 1000 - count(*)) into v_room from (
      select 1 from posthaste.work w where w.tenant = p_tenant and w.endpoint = p_endpoint and w.lane = 'bulk' limit 1000) x;
  end if;
  return v_room;
end $$;

-- Moves events that an endpoint never got into work. The fan-out's row is locked, as resend_event does, and the
-- statement after that looks again: nobody else has made the delivery meanwhile.
create or replace function posthaste.replay_missed(r posthaste.replays, p_events text[], p_ats timestamptz[]) returns bigint language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_now timestamptz;
  v_made bigint;
  v_have text[];
begin
  perform f.event from unnest(p_events, p_ats) a (event, at)
  join posthaste.event_fanouts f on f.tenant = r.tenant and f.event_at = a.at and f.event = a.event order by f.event_at, f.event for update of f;
  -- Once over the endpoint's rows, and before its lock: with the fan-outs locked nobody else makes one of these.
  v_have := array(
    select w.event from posthaste.work w where w.endpoint = r.endpoint and w.event = any (p_events)
    union all
    select d.event from posthaste.deliveries d where d.event = any (p_events) and d.tenant = r.tenant and d.endpoint = r.endpoint);
  perform posthaste.lock_endpoints(array[r.endpoint]);
  v_now := posthaste.now_ms();
  with made as (
    insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard,
      kind, lane, state, due_at, deadline, scan_at)
    select 'dlv_' || posthaste.id_time(v_now) || posthaste.id_random(), r.tenant, e.id, v.id, v.created_at, v.type, f.sequence, v_now, r.shard,
      'replay', 'bulk', 'ready', v_now, v_now + e.deadline_ms * interval '1 millisecond', v_now
    from unnest(p_events, p_ats) a (event, at)
    join posthaste.event_fanouts f on f.tenant = r.tenant and f.event_at = a.at and f.event = a.event
    join posthaste.events v on v.tenant = r.tenant and v.created_at = a.at and v.id = a.event
    join posthaste.endpoints e on e.id = r.endpoint and e.state not in ('disabled', 'deleted')
    where not a.event = any (v_have)
    returning 1
  )
  select count(*) into v_made from made;
  return v_made;
end $$;

-- One page. `state`: of the replay afterwards, 'unknown' when there is none. `wait_ms`: until the next page may be made.
-- `slept`: up to 50 deliveries that were cancelled and whose workflows should be told.
create or replace function posthaste.replay_page(p_replay text, p_alive interval, out state text, out wait_ms int, out slept text[])
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  r posthaste.replays;
  v_now timestamptz;
  v_most int;
  v_gone text;
  v_looked int := 0;
  v_hits int := 0;
  v_ids text[];
  v_ats timestamptz[];
  v_last_id text;
  v_last_at timestamptz;
  v_made int := 0;
  v_moved int := 0;
  v_scan int;
begin
  wait_ms := 0;
  select * into r from posthaste.replays x where x.id = p_replay for update;
  state := coalesce(r.state, 'unknown');
  if state <> 'running' then
    return;
  end if;
  v_now := clock_timestamp();
  if r.next_at > v_now then
    wait_ms := ceil(extract(epoch from r.next_at - v_now) * 1000);
    update posthaste.replays x set alive_until = v_now + p_alive where x.id = r.id;
    return;
  end if;
  v_most := least(200, r.rate);
  v_scan := case when r.phase = 'missed' then 1000 else 5000 end; -- looking for a missed one costs more
  if r.action = 'resend' then
    select e.state into v_gone from posthaste.endpoints e where e.id = r.endpoint and e.state in ('disabled', 'deleted');
    if v_gone is not null then
      state := 'stopped';
      update posthaste.replays x set state = 'stopped', reason = 'endpoint_' || v_gone, waiting = false, updated_at = v_now, finished_at = v_now where x.id = r.id;
      return;
    end if;
    -- Not for a few at a time: the page costs the same.
    if posthaste.replay_room(r.tenant, r.endpoint) < v_most then
      v_most := posthaste.replay_room(r.tenant, r.endpoint);
      if v_most < least(50, r.rate) then
        wait_ms := 1000;
        update posthaste.replays x set waiting = true, next_at = v_now + interval '1 second', alive_until = v_now + p_alive, updated_at = v_now where x.id = r.id;
        return;
      end if;
    end if;
  end if;

  if r.source = 'delivery' and r.phase = 'deliveries' then
    v_ids := array[r.delivery];
    v_hits := 1;
  else
    with c as materialized (select * from posthaste.replay_candidates(r, v_scan) with ordinality as c (id, at, hit, ord)),
      h as materialized (select * from c where c.hit order by c.ord limit v_most),
      -- Behind the last match taken, or behind everything looked at.
      l as (select c.id, c.at from c where c.ord = case when (select count(*) from h) = v_most then (select max(h.ord) from h) else (select max(c.ord) from c) end)
    select (select count(*) from c), (select count(*) from h), (select array_agg(h.id order by h.ord) from h), (select array_agg(h.at order by h.ord) from h),
      (select l.id from l), (select l.at from l)
    into v_looked, v_hits, v_ids, v_ats, v_last_id, v_last_at;
  end if;

  if v_hits > 0 then
    if r.phase = 'missed' then
      v_made := posthaste.replay_missed(r, v_ids, v_ats);
    elsif r.action = 'resend' then
      select count(*) into v_moved from posthaste.resend_many(r.tenant, v_ids) x where x.state <> 'sending';
    else
      select count(*) filter (where x.state in ('cancelled', 'sending')), (array_agg(x.delivery) filter (where x.workflow and x.state = 'cancelled'))[:50]
      into v_moved, slept from posthaste.cancel_many(r.tenant, v_ids) x;
    end if;
  end if;

  -- A page that looked at less than it might, and took all that matched, was the last of its phase.
  if v_hits < v_most and v_looked < v_scan then
    if r.missed and r.phase = 'deliveries' then
      r.phase := 'missed';
      v_last_id := '';
      v_last_at := '-infinity';
    else
      state := 'done';
    end if;
  end if;
  update posthaste.replays x
  set state = replay_page.state, phase = r.phase, cursor_id = coalesce(v_last_id, x.cursor_id), cursor_at = coalesce(v_last_at, x.cursor_at),
    moved = x.moved + v_moved, missed_made = x.missed_made + v_made, skipped = x.skipped + v_hits - v_moved - v_made, waiting = false,
    next_at = greatest(x.next_at, v_now - interval '1 second') + v_hits * interval '1 second' / x.rate,
    alive_until = v_now + p_alive, updated_at = v_now, finished_at = case when replay_page.state = 'done' then v_now end
  where x.id = r.id returning greatest(0, ceil(extract(epoch from x.next_at - v_now) * 1000)) into wait_ms;
end $$;

-- Counts what matches, once, for people who wait. Beyond 100,000 looked at (5,000 events that may have been missed) it gives up: total stays null.
create or replace function posthaste.replay_count(p_replay text) returns void language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  r posthaste.replays;
  v_looked int;
  v_total int := 0;
  v_part int;
  c_most constant int := 100000;
  c_missed constant int := 5000;
begin
  select * into r from posthaste.replays x where x.id = p_replay and not x.counted and x.state = 'running' and x.moved + x.missed_made + x.skipped = 0;
  if not found then
    return;
  end if;
  if r.source = 'delivery' then
    v_total := 1;
  else
    select count(*), count(*) filter (where c.hit) into v_looked, v_total from posthaste.replay_candidates(r, c_most + 1) c;
    if v_looked > c_most then v_total := null; end if;
    if r.missed then
      r.phase := 'missed';
      select count(*), count(*) filter (where c.hit) into v_looked, v_part from posthaste.replay_candidates(r, c_missed + 1) c;
      v_total := case when v_looked <= c_missed then v_total + v_part end;
    end if;
  end if;
  update posthaste.replays x set counted = true, total = v_total where x.id = p_replay and not x.counted;
end $$;

-- Replays of these shards that nobody pages: new ones, and those whose workflow was lost.
create or replace function posthaste.scan_replays(p_shards int[], p_limit int, p_alive interval)
returns table (id text, tenant text) language sql volatile as $$
  with lost as (
    select r.id from posthaste.replays r where r.shard = any (p_shards) and r.state = 'running' and r.alive_until <= statement_timestamp()
    order by r.alive_until limit p_limit for update skip locked
  )
  update posthaste.replays r set alive_until = clock_timestamp() + p_alive from lost l where r.id = l.id returning r.id, r.tenant
$$;
