-- The health step (src/relay/health.ts): takes what recording calls and operators said of endpoints, lets the pure
-- reducer decide, writes the decision back with compare-and-swap. No row is locked while JavaScript runs; a loser
-- leaves the inbox as it is and reduces again; a crash loses nothing.

-- Endpoints with news (oldest first) or past their wake_at, with what the reducer needs to know of each.
drop function if exists posthaste.health_due(int[], int);
create function posthaste.health_due(p_shards int[], p_limit int)
returns table (
  endpoint text, tenant text, url text, version bigint, memory jsonb, facts json, ids bigint[], more boolean,
  epoch int, mode text, health text, oks bigint, send_rate real, recent_rate real, arrival_rate real, last_success_at timestamptz, pause_until timestamptz, cap int,
  timeout_ms int, operator text, revision int, fails_in_row int, held int, now_ms float8
) language sql stable as $$
  with news as materialized (
    select i.id, i.endpoint, i.at, i.fact from posthaste.health_inbox i where i.shard = any (p_shards) order by i.id limit p_limit
  ), who as (
    select n.endpoint from news n
    union
    (select h.endpoint from posthaste.endpoint_health h where h.shard = any (p_shards) and h.wake_at <= statement_timestamp() and h.wake_at < 'infinity' order by h.wake_at limit 500)
  ), said as (
    select n.endpoint, array_agg(n.id) as ids,
      json_agg(n.fact::jsonb || jsonb_build_object('atMs', floor(extract(epoch from n.at) * 1000)) order by n.id) as facts
    from news n group by n.endpoint
  )
  select s.endpoint, s.tenant, e.url, h.version, h.state, coalesce(d.facts, '[]'), coalesce(d.ids, '{}'), (select count(*) >= p_limit from news),
    s.epoch, s.mode, s.health, s.oks,
    (s.send_rate * exp(greatest(-40, -extract(epoch from clock_timestamp() - s.send_rate_at)::float8 / 30)))::real,
    (s.recent_rate * exp(greatest(-40, -extract(epoch from clock_timestamp() - s.send_rate_at)::float8 / 2)))::real,
    case when s.mode = 'pump' then (select count(*) / 10.0 from (
      select from posthaste.work w where w.endpoint = s.endpoint and w.held_deadline is not null and w.lane <> 'bulk'
        and w.delivery >= 'dlv_' || posthaste.id_time(statement_timestamp() - interval '10 seconds') limit 5000) x) else 0 end::real,
    s.last_success_at, s.pause_until, s.cap, e.timeout_ms, e.state, e.revision, s.fails_in_row,
    case when s.mode = 'pump' then (select count(*)::int from (select from posthaste.work w where w.endpoint = s.endpoint and w.held_deadline is not null limit 1000) x) else 0 end,
    floor(extract(epoch from clock_timestamp()) * 1000)
  from who join posthaste.endpoint_state s on s.endpoint = who.endpoint
  join posthaste.endpoints e on e.id = s.endpoint
  left join posthaste.endpoint_health h on h.endpoint = s.endpoint
  left join said d on d.endpoint = s.endpoint
$$;

-- Writes decisions back; one JSON array, fields as in src/db/health.ts. Answers the endpoints whose decision stood:
-- version and epoch were as read. The others are reduced again from their inbox.
create or replace function posthaste.apply_health(p_steps json)
returns table (endpoint text, disabled boolean) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz;
begin
  -- Endpoints before their state, as whoever edits an endpoint does.
  perform 1 from posthaste.endpoints e
  where e.id in (select x.endpoint from json_to_recordset(p_steps) x (endpoint text, disable text) where x.disable is not null) order by e.id for no key update;
  perform posthaste.lock_endpoints(array(select x.endpoint from json_to_recordset(p_steps) x (endpoint text)));
  v_now := clock_timestamp();
  return query
  with asked as materialized (
    select x.*, s.shard, s.tenant from json_to_recordset(p_steps) x (
      endpoint text, version bigint, memory jsonb, wake_at timestamptz, ids bigint[], epoch int, health text, pump boolean,
      set_probe boolean, probe_at timestamptz, rate real, pause_until timestamptz, clear_pause boolean, keep_pump_until timestamptz,
      live_since timestamptz, reset_fails boolean, reset_tokens boolean, disable text, edges json)
    join posthaste.endpoint_state s on s.endpoint = x.endpoint and s.epoch = x.epoch
  ), stood as (
    insert into posthaste.endpoint_health as h (endpoint, shard, version, state, wake_at)
    select a.endpoint, a.shard, coalesce(a.version, 0) + 1, a.memory, coalesce(a.wake_at, 'infinity') from asked a order by a.endpoint
    on conflict on constraint endpoint_health_pkey do update set version = excluded.version, state = excluded.state, wake_at = excluded.wake_at
      where h.version = excluded.version - 1
    returning h.endpoint
  ), done as materialized (
    select a.* from asked a join stood k on k.endpoint = a.endpoint
  ), gates as (
    update posthaste.endpoint_state s set
      health = d.health,
      epoch = s.epoch + case when d.pump and s.mode = 'shared' then 1 else 0 end,
      mode_since = case when d.pump and s.mode = 'shared' then v_now else s.mode_since end,
      mode = case when d.pump then 'pump' else s.mode end,
      probe_at = case when d.set_probe then d.probe_at else s.probe_at end,
      rate = d.rate,
      tokens = case when d.reset_tokens then 0 else s.tokens end,
      tokens_at = case when d.reset_tokens then greatest(v_now, d.pause_until) else s.tokens_at end,
      pause_until = case when d.clear_pause then coalesce(d.pause_until, '-infinity') else greatest(s.pause_until, d.pause_until) end,
      keep_pump_until = coalesce(d.keep_pump_until, '-infinity'),
      live_since = coalesce(d.live_since, '-infinity'),
      fails_in_row = case when d.reset_fails then 0 else s.fails_in_row end,
      -- Whoever promised to look later may look too late now.
      pump_until = case when s.pump_token is null then '-infinity' else s.pump_until end
    from done d where s.endpoint = d.endpoint
  ), ended as (
    update posthaste.endpoints e set state = 'disabled', disabled_reason = d.disable, cancel_before = v_now, revision = e.revision + 1, updated_at = v_now
    from done d where e.id = d.endpoint and d.disable is not null and e.state in ('active', 'paused')
    returning e.id
  ), said as (
    insert into posthaste.notices (endpoint, tenant, shard, kind, at, facts)
    select d.endpoint, d.tenant, d.shard, n.edge ->> 'kind', v_now, n.edge::jsonb - 'kind'
    from done d cross join lateral json_array_elements(d.edges) n (edge)
  ), used as (
    delete from posthaste.health_inbox i using done d where i.id = any (d.ids)
  )
  select d.endpoint, exists (select from ended e where e.id = d.endpoint) from done d;
end $$;
