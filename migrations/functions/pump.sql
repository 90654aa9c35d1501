-- Permits, and the pump: the one sender of an endpoint in mode pump. The rules of locks are those of verbs.sql.

-- What an endpoint grants now, as src/domain/permits.ts specifies it: slots, and the rate tokens there are (null: it
-- has no rate). Call it with the endpoint's row locked.
create or replace function posthaste.permits(s posthaste.endpoint_state, p_now timestamptz, out slots int, out tokens real)
language plpgsql stable as $$
declare
  v_rate real := least(s.rate, s.rate_limit);
  v_cap int;
begin
  if v_rate is not null then
    tokens := least(greatest(2, v_rate), s.tokens + v_rate * greatest(0, extract(epoch from p_now - s.tokens_at)));
  end if;
  if s.pause_until > p_now then
    slots := 0;
  elsif s.probe_at is not null then
    slots := case when s.probe_at <= p_now and s.in_flight = 0 then 1 else 0 end;
  else
    v_cap := case
      when s.fails_in_row >= 20 then 0
      when s.fails_in_row >= 5 then least(s.cap, 2)
      when s.in_flight > 0 and p_now - s.busy_since > interval '2 seconds' then greatest(1, (s.cap + 2) / 3)
      else s.cap end;
    slots := greatest(0, least(v_cap - s.in_flight, coalesce(floor(tokens + 1e-6), 2147483647)::int));
  end if;
end $$;

-- What a pump waits for, and until when (null: an answer), of an endpoint whose permits are p_tokens.
create or replace function posthaste.pump_wait(s posthaste.endpoint_state, p_tokens real, p_now timestamptz, out status text, out until timestamptz)
language plpgsql stable as $$
begin
  if s.pause_until > p_now then
    status := 'waiting'; until := s.pause_until;
  elsif s.probe_at > p_now then
    status := case when s.probe_at = 'infinity' then 'pumping' else 'waiting' end;
    until := nullif(s.probe_at, 'infinity');
  else
    status := 'pumping';
    -- Out of tokens: when there will be one. Out of slots: when an answer comes.
    if p_tokens < 1 then until := p_now + (1 - p_tokens) / least(s.rate, s.rate_limit) * interval '1 second'; end if;
  end if;
end $$;

-- claim_pump: what the one pump of an endpoint in mode pump may send now. It picks the rows itself: newest traffic
-- first with the endpoint's catch_up_share always for the backlog, there by deadline, replays last. Grants as above.
-- Renews the pump's lease. With little left to do it ends the mode instead: what is held becomes ready.
--   status  pumping   `until`: when it makes sense to ask again (null: when a request has been answered)
--           idle      nothing is held
--           waiting   not before `until` (probe, pause)
--           shared    the mode has ended; what was held became ready
--           busy      another pump has the lease until `until`
--           off       paused, disabled or deleted
drop function if exists posthaste.claim_pump(text, bigint, int, interval);
create function posthaste.claim_pump(
  p_endpoint text, p_pump bigint, p_limit int, p_lease interval,
  out status text, out until timestamptz, out epoch int, out revision int, out health text, out claims json
) language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_token bigint := nextval('posthaste.claim_tokens');
  v_now timestamptz;
  s posthaste.endpoint_state;
  p record;
  v_state text;
  v_timeout int;
  v_cancel_before timestamptz;
  v_take int;
  v_backlog int;
  v_count int;
  v_may_end boolean;
  v_oldest timestamptz;
  v_taken int;
begin
  -- Most looks of most pumps find nothing to grant. They take no lock and write nothing, so they wait for no disk.
  v_now := clock_timestamp();
  select x.* into s from posthaste.endpoint_state x where x.endpoint = p_endpoint;
  if s.mode = 'pump' and s.pump_token = p_pump and s.pump_until > v_now + p_lease / 2 then
    select * into p from posthaste.permits(s, v_now);
    if p.slots < 1 and exists (select 1 from posthaste.work w where w.endpoint = p_endpoint and w.held_deadline is not null) then
      select e.state, e.revision into v_state, revision from posthaste.endpoints e where e.id = p_endpoint;
      if v_state = 'active' then
        epoch := s.epoch;
        health := s.health;
        select z.status, z.until into status, until from posthaste.pump_wait(s, p.tokens, v_now) z;
        return;
      end if;
    end if;
  end if;

  select x.* into s from posthaste.endpoint_state x where x.endpoint = p_endpoint for update;
  if not found then status := 'off'; return; end if;
  v_now := clock_timestamp();
  epoch := s.epoch;
  health := s.health;
  select e.state, e.timeout_ms, e.cancel_before, e.revision into v_state, v_timeout, v_cancel_before, revision from posthaste.endpoints e where e.id = p_endpoint;
  if s.pump_token is not null and s.pump_token <> p_pump and s.pump_until > v_now then
    status := 'busy'; until := s.pump_until; return;
  end if;
  if s.mode = 'shared' then status := 'shared'; return; end if;
  if v_state <> 'active' then
    update posthaste.endpoint_state x set pump_token = null, pump_until = '-infinity' where x.endpoint = p_endpoint;
    status := 'off'; return;
  end if;

  -- Is little left? Then the shared lanes take over. With a backlog the first few rows say that it is not so.
  v_may_end := s.probe_at is null and s.pause_until <= v_now and s.keep_pump_until <= v_now;
  select count(*), min(h.due_at) into v_count, v_oldest from (
    select w.due_at from posthaste.work w where w.endpoint = p_endpoint and w.held_deadline is not null
    order by w.lane = 'bulk', w.held_deadline limit 10) h;
  if v_may_end and v_count = 10 and v_oldest >= v_now - interval '1 second' then
    select count(*), min(h.due_at) into v_count, v_oldest from (
      select w.due_at from posthaste.work w where w.endpoint = p_endpoint and w.held_deadline is not null limit 501) h;
  end if;
  if v_may_end and v_count <= 500 and coalesce(v_oldest, v_now) >= v_now - interval '1 second' then
    with released as (
      update posthaste.work w set state = 'ready', held_deadline = null, scan_at = v_now, scans = 0
      where w.endpoint = p_endpoint and w.held_deadline is not null and w.state = 'held'
    )
    update posthaste.endpoint_state x set mode = 'shared', epoch = x.epoch + 1, mode_since = v_now, pump_token = null, pump_until = '-infinity'
    where x.endpoint = p_endpoint;
    insert into posthaste.health_inbox (endpoint, shard, fact) values (p_endpoint, s.shard, '{"edit": "drained"}');
    status := 'shared';
    return;
  end if;

  select * into p from posthaste.permits(s, v_now);
  v_take := least(p.slots, p_limit);
  if v_count = 0 then
    status := 'idle';
  else
    select z.status, z.until into status, until from posthaste.pump_wait(s, p.tokens, v_now) z;
  end if;

  v_backlog := floor((s.pumped + v_take) * s.catch_up_share::float8) - floor(s.pumped * s.catch_up_share::float8);
  with live as materialized (
    select w.delivery, row_number() over (order by w.delivery) as nth from posthaste.work w
    where v_take > 0 and s.live_since > '-infinity' and w.endpoint = p_endpoint and w.delivery >= 'dlv_' || posthaste.id_time(greatest(s.live_since, 'epoch'))
      and w.held_deadline is not null and w.lane <> 'bulk' and w.due_at <= v_now and w.deadline > v_now and not w.cancel_requested and w.queued_at > v_cancel_before
    order by w.delivery limit v_take
  ), late as materialized (
    -- The first thousand by deadline: where all of these are live, there is no backlog worth a walk over the rest.
    -- In the order of the index, so that the walk ends with the last row taken.
    select w.delivery, row_number() over () as nth from (
      select w.* from (
        select x.* from posthaste.work x where x.endpoint = p_endpoint and x.held_deadline is not null
          and v_take > 0 and (v_backlog > 0 or (select count(*) from live) < v_take)
        order by x.lane = 'bulk', x.held_deadline limit 1000 + v_take
      ) w
      where w.due_at <= v_now and w.deadline > v_now and not w.cancel_requested and w.queued_at > v_cancel_before
        and (s.live_since = '-infinity' or w.lane = 'bulk' or w.delivery < 'dlv_' || posthaste.id_time(greatest(s.live_since, 'epoch')))
      limit v_take
    ) w
  ), sizes as materialized (
    select least((select count(*) from live), v_take - least(v_backlog, (select count(*) from late))) as of_live
  ), picked as materialized (
    select l.delivery from live l, sizes z where l.nth <= z.of_live
    union all
    select l.delivery from late l, sizes z where l.nth <= v_take - z.of_live
  ), moved as (
    update posthaste.work w
    set state = 'sending', held_deadline = null, n = w.n + 1, token = v_token, claim_until = v_now + (v_timeout + 10000) * interval '1 millisecond',
      scan_at = v_now + (v_timeout + 10000) * interval '1 millisecond' -- a held row is scanned at its deadline only; the reaper must find this one
    from picked k where w.delivery = k.delivery and w.state = 'held' and w.token is null
    returning w.delivery, w.n, w.generation
  )
  select count(*), json_agg(json_build_object('delivery', m.delivery, 'n', m.n, 'generation', m.generation, 'token', v_token))
  into v_taken, claims from moved m;
  update posthaste.endpoint_state x set in_flight = x.in_flight + v_taken, pumped = x.pumped + v_taken,
    busy_since = case when x.in_flight = 0 and v_taken > 0 then v_now else x.busy_since end,
    probe_at = case when v_taken > 0 and x.probe_at is not null then 'infinity'::timestamptz else x.probe_at end,
    tokens = coalesce(p.tokens - case when s.probe_at is null then v_taken else 0 end, x.tokens), tokens_at = case when p.tokens is null then x.tokens_at else v_now end,
    pump_token = p_pump, pump_until = v_now + p_lease
  where x.endpoint = p_endpoint;
  if v_taken > 0 and status = 'idle' then status := 'pumping'; end if;
  if v_taken = v_take and v_take > 0 then until := null; end if;
  -- Held rows that are not due (a resend that failed) or must end are not for now.
  if v_taken = 0 and v_take > 0 and status = 'pumping' then status := 'idle'; end if;
end $$;

-- A pump goes: at once free for another, or (p_until) somebody will look at that time.
create or replace function posthaste.leave_pump(p_endpoint text, p_pump bigint, p_until timestamptz) returns void language sql volatile as $$
  update posthaste.endpoint_state s set pump_token = null, pump_until = coalesce(p_until, '-infinity')
  where s.endpoint = p_endpoint and s.pump_token = p_pump
$$;

-- park: what found no slot or token for too long waits for the pump; its endpoint goes to mode pump.
create or replace function posthaste.park(p_deliveries text[], p_dispatch text) returns bigint
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_count bigint;
  v_now timestamptz;
begin
  perform posthaste.lock_endpoints(array(select distinct w.endpoint from posthaste.work w where w.delivery = any (p_deliveries)));
  v_now := clock_timestamp();
  with parked as (
    -- What must end instead is for the scanner.
    update posthaste.work w
    set state = case when g.gone then w.state else 'held' end, held_deadline = case when not g.gone then w.deadline end, dispatch = null,
      scan_at = case when g.gone then v_now else w.deadline end
    from (
      select x.delivery, e.state in ('disabled', 'deleted') or x.queued_at <= e.cancel_before as gone
      from posthaste.work x join posthaste.endpoints e on e.id = x.endpoint where x.delivery = any (p_deliveries)
    ) g
    where w.delivery = g.delivery and w.dispatch is not distinct from p_dispatch
      and w.state in ('ready', 'retrying') and w.kind <> 'test'
    returning w.endpoint, w.state
  ), crowded as (
    update posthaste.endpoint_state s set mode = 'pump', epoch = s.epoch + 1, mode_since = v_now, live_since = v_now
    where s.endpoint in (select p.endpoint from parked p where p.state = 'held') and s.mode = 'shared'
    returning s.endpoint, s.shard
  ), told as (
    insert into posthaste.health_inbox (endpoint, shard, fact) select c.endpoint, c.shard, '{"edit": "overloaded"}' from crowded c
  )
  select count(*) into v_count from parked;
  return v_count;
end $$;

