-- Outbox rows become deliveries: one call, one transaction, everything or nothing.
--
-- The relay decides how many events of which tenant (src/domain/fairness.ts); this function takes them. Deleting
-- the outbox row is what makes a fan-out happen once, whoever else tries. SQLSTATE PHFEN: the caller lost a shard.
--
-- tenants:    [{tenant, lim, events, deliveries, xid, seq}]  what was taken of at most lim, and the last position
-- dispatches: [{id, members}]                           groups made, of 1,000 at most
-- deliveries: [{delivery, tenant, endpoint, event, event_type}]  the ones without a group; held ones need no workflow

create or replace function posthaste.fan_out(
  p_shards int[], p_epochs bigint[],     -- the leases the caller acts under
  p_tenants text[], p_xids text[], p_seqs bigint[], p_limits int[], -- per tenant: start after (xid, seq), at most limit
  p_rooms int[],                         -- per tenant: deliveries it may have more of; one event is always taken
  p_dispatch text,                       -- id for the group (…-2, …-3 for each further 1,000)
  p_singles int,                         -- up to so many deliveries go without a group; 2147483647: each has a workflow, held or not
  p_alive interval,                      -- how long work may wait for its workflow before the scanner looks
  out tenants json, out dispatches json, out deliveries json
) language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_held bigint;
  v_now timestamptz := posthaste.now_ms();
  v_pumped text[];
  v_prefix text := 'dlv_' || posthaste.id_time(v_now);
begin
  select count(*) into v_held from (
    select 1 from posthaste.shards s join unnest(p_shards, p_epochs) l (shard, epoch) on s.shard = l.shard and s.epoch = l.epoch
    where s.lease_until > clock_timestamp() for share of s
  ) x;
  if v_held <> cardinality(p_shards) then
    raise exception 'a shard lease was lost' using errcode = 'PHFEN';
  end if;

  -- An endpoint that is leaving mode pump takes along what is held; rows made held here must not come behind that.
  -- Who goes to mode pump after this look gets its rows as ready; the claim holds them.
  v_pumped := array(select x.endpoint from (
    select s.endpoint, s.mode from posthaste.endpoint_state s where s.shard = any (p_shards) and s.tenant = any (p_tenants) and s.mode = 'pump'
    order by s.endpoint for share) x where x.mode = 'pump');

  with want as materialized (
    select w.tenant, w.xid, w.seq, least(w.lim, greatest(1, w.room / greatest(1, (
      select count(*) from posthaste.endpoints e where e.tenant = w.tenant and e.state in ('active', 'paused'))))) as lim
    from unnest(p_tenants, p_xids, p_seqs, p_limits, p_rooms) w (tenant, xid, seq, lim, room)
  ), picked as materialized (
    select o.place, w.lim
    from want w cross join lateral (
      select o.ctid as place from posthaste.outbox o
      where o.tenant = w.tenant and (o.xid, o.seq) > (w.xid::xid8, w.seq)
      order by o.xid, o.seq limit w.lim
    ) o
  ), taken as (
    -- Rows of the outbox are never changed, so a place is a row. Whoever else takes it meanwhile, one of us gets nothing.
    delete from posthaste.outbox o using picked p
    where o.ctid = p.place
    returning o.tenant, o.xid, o.seq, o.shard, o.event, o.event_at, o.type, p.lim
  ), sequences as (
    update posthaste.tenant_sequences t set value = t.value + c.events
    from (select k.tenant, count(*) as events from taken k group by k.tenant) c
    where t.tenant = c.tenant
    returning t.tenant, t.value - c.events as base
  ), bases as materialized (
    -- As one object: the planner takes these CTEs for single rows and would join them by nested loops, 500 x 100.
    select jsonb_object_agg(s.tenant, s.base) as of_tenant from sequences s
  ), numbered as materialized (
    select k.*, ((select b.of_tenant from bases b) ->> k.tenant)::bigint
      + row_number() over w as sequence,
      lead(k.seq) over w is null as last -- of its tenant
    from taken k window w as (partition by k.tenant order by k.xid, k.seq)
  ), matched as materialized (
    -- One row per delivery, and one without an endpoint for an event nobody asked for.
    select case when e.id is not null then v_prefix || posthaste.id_random() end as delivery, n.tenant, e.id as endpoint, n.event, n.event_at,
      n.type, n.sequence, n.shard, n.xid, n.seq, n.lim, n.last, e.deadline_ms, e.id = any (v_pumped) as held,
      row_number() over (partition by n.seq) as nth,
      count(e.id) over (partition by n.seq) as deliveries,
      (count(e.id) filter (where not e.id = any (v_pumped)) over (order by n.seq rows unbounded preceding) - 1) / 1000 + 1 as chunk,
      count(e.id) filter (where not e.id = any (v_pumped)) over () > p_singles as grouped
    from numbered n
    left join (
      select x.id, x.tenant, x.event_types, x.deadline_ms from posthaste.endpoints x where x.state in ('active', 'paused')
    ) e on e.tenant = n.tenant and (e.event_types is null or n.type = any (e.event_types))
  ), placed as materialized (
    select m.*, case when m.grouped and not m.held then p_dispatch || case when m.chunk = 1 then '' else '-' || m.chunk end end as dispatch
    from matched m where m.endpoint is not null
  ), fanouts as (
    insert into posthaste.event_fanouts (tenant, event_at, event, sequence, deliveries, fanned_out_at)
    select m.tenant, m.event_at, m.event, m.sequence, m.deliveries, v_now from matched m where m.nth = 1
  ), groups as (
    insert into posthaste.dispatches (id, shard, lane, members, alive_until)
    select p.dispatch, min(p.shard), 'first', count(*)::int, clock_timestamp() + p_alive
    from placed p where p.dispatch is not null group by p.dispatch
    returning id, members
  ), rows as (
    insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard,
      kind, lane, state, due_at, deadline, scan_at, dispatch, workflow, held_deadline)
    select p.delivery, p.tenant, p.endpoint, p.event, p.event_at, p.type, p.sequence, v_now, p.shard,
      'live', 'first', case when p.held then 'held' else 'ready' end, v_now, v_now + p.deadline_ms * interval '1 millisecond',
      case when p.held then v_now + p.deadline_ms * interval '1 millisecond' when p.dispatch is null then clock_timestamp() + p_alive else 'infinity' end,
      p.dispatch, p.dispatch is null and (not p.held or p_singles = 2147483647), case when p.held then v_now + p.deadline_ms * interval '1 millisecond' end
    from placed p
  )
  select
    (select json_agg(x) from (
      select m.tenant, max(m.lim) as lim, count(*) filter (where m.nth = 1) as events, count(m.endpoint) as deliveries,
        max(m.xid::text) filter (where m.last) as xid, max(m.seq) filter (where m.last) as seq
      from matched m group by m.tenant) x),
    (select json_agg(json_build_object('id', g.id, 'members', g.members)) from groups g),
    (select json_agg(json_build_object('delivery', p.delivery, 'tenant', p.tenant, 'endpoint', p.endpoint, 'event', p.event, 'event_type', p.type))
      from placed p where p.dispatch is null and (not p.held or p_singles = 2147483647))
  into tenants, dispatches, deliveries;
end $$;
