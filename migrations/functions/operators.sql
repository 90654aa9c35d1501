-- What people do to deliveries: resend, cancel, one or many. Guarded statements, harmless at any instant; the API, the
-- workflow's Update and its signal all call these, and so do the pages of a replay (replays.sql).

-- resend_many answers each delivery's state afterwards:
--   retrying, ready, held  tried now; a failure goes back to the schedule as it was
--   sending                an attempt is under way: nothing to do
--   ended                  back to work: n goes on, generation + 1, schedule and deadline anew
-- A cancel that has not taken effect is withdrawn: the last order counts. No row for a delivery that does not exist, whose
-- endpoint is disabled or deleted, or (ended) whose event is no longer kept.
create or replace function posthaste.resend_once(p_tenant text, p_deliveries text[])
returns table (delivery text, state text, generation int, n int) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_now timestamptz;
begin
  perform posthaste.lock_endpoints(array(
    select w.endpoint from posthaste.work w where w.delivery = any (p_deliveries) and w.tenant = p_tenant
    union
    select d.endpoint from unnest(p_deliveries) a (id)
    join posthaste.deliveries d on d.id = a.id and d.created_at = posthaste.id_at(a.id) and d.tenant = p_tenant));
  v_now := clock_timestamp();
  return query
  with hurried as (
    -- One that is due already needs no hurry: its next attempt is the schedule's own.
    update posthaste.work w
    set resume_at = case when w.state = 'retrying' and w.due_at > v_now then coalesce(w.resume_at, w.due_at) else w.resume_at end,
      due_at = least(w.due_at, v_now), scan_at = case when w.dispatch is null and w.state <> 'held' then v_now else w.scan_at end, cancel_requested = false,
      queued_at = v_now -- an endpoint's end before this order does not reach it
    from posthaste.endpoints e
    where w.delivery = any (p_deliveries) and w.tenant = p_tenant and w.state in ('ready', 'retrying', 'held')
      and w.kind <> 'test' and e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    returning w.delivery, w.state, w.generation, w.n
  ), sending as (
    update posthaste.work w set cancel_requested = false, queued_at = v_now from posthaste.endpoints e
    where w.delivery = any (p_deliveries) and w.tenant = p_tenant and w.state = 'sending'
      and w.kind <> 'test' and e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    returning w.delivery, w.state, w.generation, w.n
  ), back as (
    delete from posthaste.deliveries d using unnest(p_deliveries) a (id), posthaste.endpoints e
    where d.id = a.id and d.created_at = posthaste.id_at(a.id) and d.tenant = p_tenant
      and d.kind <> 'test' and e.id = d.endpoint and e.state not in ('disabled', 'deleted')
      and exists (select from posthaste.all_events v where v.tenant = d.tenant and v.created_at = d.event_at and v.id = d.event)
    returning d.*, e.deadline_ms
  ), undead as (
    delete from posthaste.dead_letters x using back b where x.delivery = b.id
  ), again as (
    insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard,
      kind, lane, state, due_at, deadline, n, generation, scan_at, last_status, last_class)
    select b.id, b.tenant, b.endpoint, b.event, b.event_at, b.event_type, b.sequence, b.created_at, t.shard,
      'replay', 'bulk', 'ready', v_now, v_now + b.deadline_ms * interval '1 millisecond', b.n, b.generation + 1, v_now, b.last_status, b.last_class
    from back b join posthaste.tenants t on t.id = b.tenant
    returning work.delivery, work.state, work.generation, work.n
  )
  select * from hurried union all select * from sending union all select * from again;
end $$;

-- One that ended (without its endpoint's lock: finish) between the look at work and the move is asked for once more.
create or replace function posthaste.resend_many(p_tenant text, p_deliveries text[])
returns table (delivery text, state text, generation int, n int) language plpgsql as $$
declare
  v_done text[];
begin
  for delivery, state, generation, n in select r.delivery, r.state, r.generation, r.n from posthaste.resend_once(p_tenant, p_deliveries) r loop
    v_done := v_done || delivery;
    return next;
  end loop;
  if coalesce(cardinality(v_done), 0) < cardinality(p_deliveries) then
    return query select r.* from posthaste.resend_once(p_tenant, array(
      select a.id from unnest(p_deliveries) a (id) where not a.id = any (coalesce(v_done, '{}')))) r;
  end if;
end $$;

-- resend: one. No row when there is no such delivery of this tenant; SQLSTATE PHEND when its endpoint is disabled or
-- deleted, PHEXP when its event is no longer kept, PHTST when it was a test send.
create or replace function posthaste.resend(p_tenant text, p_delivery text)
returns table (delivery text, state text, generation int, n int) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_endpoint text;
  v_state text;
  v_kind text;
begin
  return query select * from posthaste.resend_many(p_tenant, array[p_delivery]);
  if found then
    return;
  end if;
  select e.id, e.state, x.kind into v_endpoint, v_state, v_kind from (
    select w.endpoint, w.kind from posthaste.work w where w.delivery = p_delivery and w.tenant = p_tenant
    union all
    select d.endpoint, d.kind from posthaste.deliveries d where d.id = p_delivery and d.created_at = posthaste.id_at(p_delivery) and d.tenant = p_tenant
  ) x join posthaste.endpoints e on e.id = x.endpoint limit 1;
  if v_kind = 'test' then
    raise exception 'delivery % is a test send', p_delivery using errcode = 'PHTST', hint = 'Send another test.';
  elsif v_state in ('disabled', 'deleted') then
    raise exception 'endpoint % is %', v_endpoint, v_state using errcode = 'PHEND', hint = case v_state when 'disabled' then 'Enable the endpoint first.' else 'A deleted endpoint takes nothing more.' end;
  elsif v_state is not null then
    raise exception 'the event of delivery % is no longer kept', p_delivery using errcode = 'PHEXP', hint = 'Send a new event.';
  end if;
end $$;

-- cancel_many: at once, or with the result of the attempt under way (a 2xx is still delivered). Ended ones stay as they
-- are. `workflow`: one sleeps for it and should be told.
create or replace function posthaste.cancel_many(p_tenant text, p_deliveries text[])
returns table (delivery text, state text, generation int, n int, workflow boolean) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_marked text[];
  v_slept text[];
begin
  perform posthaste.lock_endpoints(array(
    select distinct w.endpoint from posthaste.work w where w.delivery = any (p_deliveries) and w.tenant = p_tenant));
  with marked as (
    update posthaste.work w set cancel_requested = true where w.delivery = any (p_deliveries) and w.tenant = p_tenant returning w.delivery
  )
  select coalesce(array_agg(m.delivery), '{}') into v_marked from marked m;
  select coalesce(array_agg(f.delivery) filter (where f.workflow), '{}') into v_slept from posthaste.finish(v_marked) f;
  return query
  select w.delivery, w.state, w.generation, w.n, w.workflow from posthaste.work w where w.delivery = any (p_deliveries) and w.tenant = p_tenant
  union all
  select d.id, d.state, d.generation, d.n, d.id = any (v_slept) from unnest(p_deliveries) a (id)
  join posthaste.deliveries d on d.id = a.id and d.created_at = posthaste.id_at(a.id) and d.tenant = p_tenant;
end $$;

create or replace function posthaste.cancel(p_tenant text, p_delivery text)
returns table (delivery text, state text, generation int, n int) language sql volatile as $$
  select c.delivery, c.state, c.generation, c.n from posthaste.cancel_many(p_tenant, array[p_delivery]) c
$$;

-- An event again to every endpoint: ended deliveries are replayed, unfinished ones hurried, and endpoints that
-- subscribe now but had no delivery get one. No row when the event does not exist or has not been fanned out yet.
create or replace function posthaste.resend_event(p_tenant text, p_event text, p_event_at timestamptz)
returns table (delivery text, state text, generation int, n int) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := posthaste.now_ms();
begin
  -- One call for an event at a time: two at once would both find an endpoint without a delivery. Then every endpoint
  -- in id order, as everywhere.
  perform 1 from posthaste.event_fanouts f where f.tenant = p_tenant and f.event_at = p_event_at and f.event = p_event for update;
  perform posthaste.lock_endpoints(array(select e.id from posthaste.endpoints e where e.tenant = p_tenant and e.state in ('active', 'paused')));
  return query select * from posthaste.resend_many(p_tenant, array(
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state in ('active', 'paused')
    where w.tenant = p_tenant and w.event = p_event
    union
    select d.id from posthaste.deliveries d join posthaste.endpoints e on e.id = d.endpoint and e.state in ('active', 'paused')
    where d.tenant = p_tenant and d.event = p_event));
  return query
  insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard,
    kind, lane, state, due_at, deadline, scan_at)
  select 'dlv_' || posthaste.id_time(v_now) || posthaste.id_random(), p_tenant, e.id, p_event, p_event_at, v.type, f.sequence, v_now, t.shard,
    'replay', 'bulk', 'ready', v_now, v_now + e.deadline_ms * interval '1 millisecond', v_now
  from posthaste.all_events v
  join posthaste.event_fanouts f on f.tenant = v.tenant and f.event_at = v.created_at and f.event = v.id
  join posthaste.tenants t on t.id = v.tenant
  join posthaste.endpoints e on e.tenant = v.tenant and e.state in ('active', 'paused') and (e.event_types is null or v.type = any (e.event_types))
  where v.tenant = p_tenant and v.created_at = p_event_at and v.id = p_event
    and not exists (select from posthaste.work w where w.tenant = p_tenant and w.event = p_event and w.endpoint = e.id)
    and not exists (select from posthaste.deliveries d where d.tenant = p_tenant and d.event = p_event and d.endpoint = e.id)
  returning work.delivery, work.state, work.generation, work.n;
end $$;
