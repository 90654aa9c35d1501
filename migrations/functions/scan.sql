-- The scanner's statements: what lost its owner gets one again. Called every second by the owner of the shards
-- (src/relay/scanner.ts). All are bounded by p_limit and may be repeated at will.

-- Sending rows that were looked at too early wait for the end of their claim; the reaper takes them from there.
create or replace function posthaste.scan_later(p_shards int[], p_grace interval, p_limit int) returns bigint language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with early as (
    select w.delivery from posthaste.work w
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.state = 'sending' and w.claim_until + p_grace > statement_timestamp()
    order by w.scan_at limit p_limit for update skip locked
  ), moved as (
    update posthaste.work w set scan_at = w.claim_until + p_grace from early e
    where w.delivery = e.delivery and w.state = 'sending' returning 1
  )
  select count(*) from moved
$$;

-- Groups whose activity stopped renewing them (or that close): members become rows alone, due for the scanner.
-- p_ids null: every group of these shards past its alive_until.
create or replace function posthaste.dissolve(p_shards int[], p_ids text[], p_grace interval) returns table (id text, members bigint)
language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with dead as (
    delete from posthaste.dispatches d
    where case when p_ids is null then d.shard = any (p_shards) and d.alive_until <= statement_timestamp() else d.id = any (p_ids) end
    returning d.id
  ), freed as (
    update posthaste.work w
    set dispatch = null, scan_at = case when w.state = 'sending' then w.claim_until + p_grace else greatest(w.due_at, clock_timestamp()) end
    from dead d where w.dispatch = d.id
    returning w.dispatch, w.delivery, d.id
  )
  select d.id, (select count(*) from freed f where f.id = d.id) from dead d
$$;

-- Rows past their scan_at by what they need: 'finish' (deadline passed, cancelled, endpoint gone), 'hold' (waits for its
-- endpoint), 'wake' (its workflow should have acted), 'test', or a group on their lane; and of those being sent, 'later'
-- (scan_later) or 'reap' (the claim ran out more than p_grace ago).
drop function if exists posthaste.scan_due(int[], int);
create or replace function posthaste.scan_due(p_shards int[], p_grace interval, p_limit int)
returns table (need text, rows bigint, oldest timestamptz) language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  select x.need, count(*), min(x.scan_at) from (
    select w.scan_at, case
      when w.state = 'sending' then case when w.claim_until + p_grace > statement_timestamp() then 'later' else 'reap' end
      when w.deadline <= statement_timestamp() or w.cancel_requested or e.state = 'deleted'
        or (w.kind <> 'test' and (e.state = 'disabled' or w.queued_at <= e.cancel_before)) then 'finish'
      when w.kind = 'test' then 'test' -- scan_tests
      when w.state = 'held' or (s.mode = 'pump' and not w.workflow) then 'hold'
      when w.workflow then 'wake'
      else w.lane end as need
    from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint join posthaste.endpoint_state s on s.endpoint = w.endpoint
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity'
    order by w.scan_at limit p_limit
  ) x group by x.need
$$;

create or replace function posthaste.scan_finish(p_shards int[], p_limit int)
returns table (delivery text, workflow boolean) language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
begin
  return query select f.delivery, f.workflow from posthaste.finish(array(
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.state in ('ready', 'retrying', 'held')
      and (w.deadline <= statement_timestamp() or w.cancel_requested or e.state = 'deleted'
        or (w.kind <> 'test' and (e.state = 'disabled' or w.queued_at <= e.cancel_before)))
    order by w.scan_at limit p_limit)) f;
end $$;

-- Deliveries whose own workflow is late: to be signalled (and started if it vanished). After two looks in vain the
-- row no longer counts on a workflow and waits for a group instead.
create or replace function posthaste.scan_wake(p_shards int[], p_limit int)
returns table (delivery text, generation int, tenant text, endpoint text, event text, event_type text) language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with late as (
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted') and w.queued_at > e.cancel_before
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.workflow and w.state in ('ready', 'retrying')
      and w.kind <> 'test' and w.deadline > statement_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  )
  update posthaste.work w
  set scans = w.scans + 1, workflow = w.scans < 2, scan_at = clock_timestamp() + case when w.scans < 2 then interval '30 seconds' * 2 ^ w.scans else interval '0' end
  from late l where w.delivery = l.delivery
  returning w.delivery, w.generation, w.tenant, w.endpoint, w.event, w.event_type
$$;

-- One group of up to p_limit due rows of a lane, oldest first.
create or replace function posthaste.regroup(p_shards int[], p_lane text, p_dispatch text, p_limit int, p_alive interval) returns bigint
language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with due as (
    select w.delivery, w.shard from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted') and w.queued_at > e.cancel_before
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.lane = p_lane and w.state in ('ready', 'retrying') and w.kind <> 'test'
      and not w.workflow and w.dispatch is null and w.deadline > statement_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  ), made as (
    insert into posthaste.dispatches (id, shard, lane, members, alive_until)
    select p_dispatch, min(d.shard), p_lane, count(*), clock_timestamp() + p_alive from due d having count(*) > 0
    returning id
  ), joined as (
    update posthaste.work w set dispatch = m.id, scan_at = 'infinity' from due d, made m where w.delivery = d.delivery returning 1
  )
  select count(*) from joined
$$;

drop function if exists posthaste.regroup_held(int[], text, text[], int, interval);

-- Due rows whose endpoint is in mode pump wait for the pump; held ones are looked at again at their deadline.
create or replace function posthaste.scan_hold(p_shards int[], p_limit int) returns bigint language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_found text[];
  v_held bigint;
begin
  v_found := array(
    select w.delivery from posthaste.work w join posthaste.endpoint_state s on s.endpoint = w.endpoint and s.mode = 'pump'
    -- What must end is not put off.
    join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted') and w.queued_at > e.cancel_before and not w.cancel_requested
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.deadline > statement_timestamp() and w.kind <> 'test'
      and (w.state = 'held' or (w.state in ('ready', 'retrying') and not w.workflow))
    order by w.scan_at limit p_limit);
  perform posthaste.lock_endpoints(array(select distinct w.endpoint from posthaste.work w where w.delivery = any (v_found)));
  update posthaste.work w set state = 'held', held_deadline = w.deadline, scan_at = w.deadline, dispatch = null
  from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint and e.state not in ('disabled', 'deleted')
  where w.delivery = any (v_found) and s.endpoint = w.endpoint and s.mode = 'pump' and w.queued_at > e.cancel_before and not w.cancel_requested
    and (w.state = 'held' or (w.state in ('ready', 'retrying') and not w.workflow and w.due_at <= statement_timestamp()));
  get diagnostics v_held = row_count;
  return v_held;
end $$;

-- Endpoints in mode pump that have something to send, may send it now, and have nobody at it; and those that have
-- nothing to wait for, which only need somebody to end the mode. Each is promised to the caller for ten seconds.
create or replace function posthaste.scan_pumps(p_shards int[], p_limit int)
returns table (endpoint text, tenant text, workflow boolean) language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with due as (
    select s.endpoint, s.tenant from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint and e.state = 'active'
    where s.shard = any (p_shards) and s.mode = 'pump' and s.pump_until < statement_timestamp() and s.pause_until <= statement_timestamp()
      and (case when s.probe_at is null then s.keep_pump_until <= statement_timestamp() else false end
        or ((s.probe_at is null or s.probe_at <= statement_timestamp())
          and exists (select from posthaste.work w where w.endpoint = s.endpoint and w.held_deadline is not null)))
    order by s.pump_until limit p_limit for update of s skip locked
  ), promised as (
    update posthaste.endpoint_state s set pump_token = null, pump_until = clock_timestamp() + interval '10 seconds' from due d
    where s.endpoint = d.endpoint
  )
  select d.endpoint, d.tenant, coalesce(h.workflow, false) from due d left join posthaste.endpoint_health h on h.endpoint = d.endpoint
$$;

-- Endpoints in mode pump that nobody shows yet: to get a workflow of their own, within the budget.
create or replace function posthaste.adopt_pumps(p_shards int[], p_limit int)
returns table (endpoint text, tenant text) language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with bare as (
    select s.endpoint, s.tenant, s.shard from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint and e.state in ('active', 'paused')
    where s.shard = any (p_shards) and s.mode = 'pump'
      and not exists (select from posthaste.endpoint_health h where h.endpoint = s.endpoint and h.workflow)
    limit p_limit
  ), adopted as (
    insert into posthaste.endpoint_health (endpoint, shard, workflow) select b.endpoint, b.shard, true from bare b
    on conflict on constraint endpoint_health_pkey do update set workflow = true where not endpoint_health.workflow
    returning endpoint_health.endpoint
  )
  select b.endpoint, b.tenant from bare b join adopted a on a.endpoint = b.endpoint
$$;

-- A group of pumps, for endpoints beyond the budget of workflows.
create or replace function posthaste.group_pumps(p_dispatch text, p_endpoints text[], p_alive interval) returns void language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  insert into posthaste.dispatches (id, shard, lane, endpoints, members, alive_until)
  select p_dispatch, min(s.shard), 'held', p_endpoints, cardinality(p_endpoints), clock_timestamp() + p_alive
  from posthaste.endpoint_state s where s.endpoint = any (p_endpoints)
$$;

-- Due rows without a workflow get one of their own (within the living budget; always with POSTHASTE_GROUPING=never).
create or replace function posthaste.scan_adopt(p_shards int[], p_lanes text[], p_limit int, p_alive interval)
returns table (delivery text, generation int, tenant text, endpoint text, event text, event_type text) language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with due as (
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted') and w.queued_at > e.cancel_before
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.lane = any (p_lanes) and w.state in ('ready', 'retrying') and w.kind <> 'test'
      and not w.workflow and w.dispatch is null and w.deadline > statement_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  )
  update posthaste.work w set workflow = true, scans = 0, scan_at = clock_timestamp() + p_alive
  from due d where w.delivery = d.delivery
  returning w.delivery, w.generation, w.tenant, w.endpoint, w.event, w.event_type
$$;

-- Endpoints whose workflow has ended without saying so (terminated, a wiped namespace) and that need none any more.
create or replace function posthaste.scan_disown(p_shards int[]) returns bigint language sql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
  with over as (
    update posthaste.endpoint_health h set workflow = false
    from posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint
    where h.shard = any (p_shards) and h.workflow and s.endpoint = h.endpoint
      and (e.state in ('disabled', 'deleted') or (s.mode = 'shared' and s.mode_since < clock_timestamp() - interval '1 minute'))
    returning 1
  )
  select count(*) from over
$$;
