-- The scanner's statements: what lost its owner gets one again. Called every second by the owner of the shards
-- (src/relay/scanner.ts). All are bounded by p_limit and may be repeated at will.

-- Sending rows that were looked at too early wait for the end of their claim; the reaper takes them from there.
create or replace function posthaste.scan_later(p_shards int[], p_grace interval, p_limit int) returns bigint language sql volatile as $$
  with early as (
    select w.delivery from posthaste.work w
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.state = 'sending' and w.claim_until + p_grace > clock_timestamp()
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
language sql volatile as $$
  with dead as (
    delete from posthaste.dispatches d
    where case when p_ids is null then d.shard = any (p_shards) and d.alive_until <= clock_timestamp() else d.id = any (p_ids) end
    returning d.id
  ), freed as (
    update posthaste.work w
    set dispatch = null, scan_at = case when w.state = 'sending' then w.claim_until + p_grace else greatest(w.due_at, clock_timestamp()) end
    from dead d where w.dispatch = d.id
    returning w.dispatch, w.delivery, d.id
  )
  select d.id, (select count(*) from freed f where f.id = d.id) from dead d
$$;

-- Rows past their scan_at by what they need: 'finish' (deadline passed, cancelled, endpoint gone), 'wake' (its
-- workflow should have acted), or a group on their lane.
create or replace function posthaste.scan_due(p_shards int[], p_limit int)
returns table (need text, rows bigint, oldest timestamptz) language sql stable as $$
  select x.need, count(*), min(x.scan_at) from (
    select w.scan_at, case
      when w.deadline <= clock_timestamp() or w.cancel_requested or e.state in ('disabled', 'deleted') then 'finish'
      when w.workflow then 'wake'
      else w.lane end as need
    from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.state in ('ready', 'retrying', 'held')
    order by w.scan_at limit p_limit
  ) x group by x.need
$$;

create or replace function posthaste.scan_finish(p_shards int[], p_limit int)
returns table (delivery text, workflow boolean) language plpgsql volatile as $$
begin
  return query select f.delivery, f.workflow from posthaste.finish(array(
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.state in ('ready', 'retrying', 'held')
      and (w.deadline <= clock_timestamp() or w.cancel_requested or e.state in ('disabled', 'deleted'))
    order by w.scan_at limit p_limit)) f;
end $$;

-- Deliveries whose own workflow is late: to be signalled (and started if it vanished). After two looks in vain the
-- row no longer counts on a workflow and waits for a group instead.
create or replace function posthaste.scan_wake(p_shards int[], p_limit int)
returns table (delivery text, generation int, tenant text, endpoint text, event text, event_type text) language sql volatile as $$
  with late as (
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.workflow and w.state in ('ready', 'retrying', 'held')
      and w.deadline > clock_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  )
  update posthaste.work w
  set scans = w.scans + 1, workflow = w.scans < 2, scan_at = clock_timestamp() + case when w.scans < 2 then interval '30 seconds' * 2 ^ w.scans else interval '0' end
  from late l where w.delivery = l.delivery
  returning w.delivery, w.generation, w.tenant, w.endpoint, w.event, w.event_type
$$;

-- One group of up to p_limit due rows of a lane, oldest first.
create or replace function posthaste.regroup(p_shards int[], p_lane text, p_dispatch text, p_limit int, p_alive interval) returns bigint
language sql volatile as $$
  with due as (
    select w.delivery, w.shard from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.lane = p_lane and w.state in ('ready', 'retrying')
      and not w.workflow and w.dispatch is null and w.deadline > clock_timestamp() and not w.cancel_requested
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

-- Rows that found no slot for a second. Endpoints with a few such rows share one group (p_shared); an endpoint with
-- many gets a group of its own, one at a time, paced by its own cap. Rows that do not fit wait behind it, so that
-- they do not stand before other endpoints' rows in the scan.
create or replace function posthaste.regroup_held(p_shards int[], p_shared text, p_ids text[], p_limit int, p_alive interval)
returns table (id text, members bigint) language sql volatile as $$
  with due as materialized (
    select w.delivery, w.endpoint, w.shard, w.scan_at from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.lane = 'held' and w.state in ('ready', 'retrying')
      and not w.workflow and w.dispatch is null and w.deadline > clock_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  ), sized as materialized (
    select d.endpoint, count(*) > 20 as many from due d
    where not exists (select from posthaste.dispatches x where x.endpoint = d.endpoint) group by d.endpoint
  ), ranked as (
    select d.delivery, d.endpoint, d.shard, z.many, row_number() over (partition by d.endpoint order by d.scan_at) as rank,
      dense_rank() over (partition by z.many order by d.endpoint) as pick, row_number() over (partition by z.many order by d.scan_at) as place
    from due d join sized z on z.endpoint = d.endpoint
  ), chosen as materialized (
    select r.delivery, r.shard, case when r.many then r.endpoint end as endpoint, case when r.many then p_ids[r.pick] else p_shared end as group_id
    from ranked r where case when r.many then r.pick <= cardinality(p_ids) and r.rank <= 500 else r.place <= 500 end
  ), made as (
    insert into posthaste.dispatches (id, shard, lane, endpoint, members, alive_until)
    select c.group_id, min(c.shard), 'held', c.endpoint, count(*), clock_timestamp() + p_alive from chosen c group by c.group_id, c.endpoint
    on conflict do nothing
    returning id, members
  ), joined as (
    update posthaste.work w set dispatch = m.id, scan_at = 'infinity' from chosen c join made m on m.id = c.group_id where w.delivery = c.delivery returning 1
  ), waiting as (
    update posthaste.work w set scan_at = clock_timestamp() + interval '2 seconds' + random() * interval '20 seconds' from due d
    where w.delivery = d.delivery and not exists (select from chosen c where c.delivery = d.delivery) returning 1
  )
  select m.id, m.members::bigint from made m
$$;

-- Rows of a group that were denied a slot for too long leave it (lane held: regroup_held).
create or replace function posthaste.park(p_deliveries text[], p_dispatch text) returns bigint language sql volatile as $$
  with parked as (
    update posthaste.work w set lane = case when w.lane = 'bulk' then 'bulk' else 'held' end, dispatch = null, workflow = false, scan_at = clock_timestamp() + interval '200 milliseconds'
    where w.delivery = any (p_deliveries) and w.dispatch is not distinct from p_dispatch and w.state in ('ready', 'retrying') returning 1
  )
  select count(*) from parked
$$;

-- Due rows without a workflow get one of their own (within the living budget; always with POSTHASTE_GROUPING=never).
create or replace function posthaste.scan_adopt(p_shards int[], p_lanes text[], p_limit int, p_alive interval)
returns table (delivery text, generation int, tenant text, endpoint text, event text, event_type text) language sql volatile as $$
  with due as (
    select w.delivery from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint and e.state not in ('disabled', 'deleted')
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.lane = any (p_lanes) and w.state in ('ready', 'retrying')
      and not w.workflow and w.dispatch is null and w.deadline > clock_timestamp() and not w.cancel_requested
    order by w.scan_at limit p_limit for update of w skip locked
  )
  update posthaste.work w set workflow = true, scans = 0, scan_at = clock_timestamp() + p_alive
  from due d where w.delivery = d.delivery
  returning w.delivery, w.generation, w.tenant, w.endpoint, w.event, w.event_type
$$;
