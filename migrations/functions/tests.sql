-- Test sends: an event of its own with one delivery of kind `test`, tried once, whatever the state of its endpoint. They
-- have a slot of their own (endpoint_state.test_in_flight), count neither for the breaker when they fail nor as dead
-- letters, and take no number of the tenant's sequence.

-- outcome: made; busy (one is under way); no_tenant; no_endpoint.
create or replace function posthaste.test_send(p_tenant text, p_endpoint text, p_type text, p_body bytea, p_slack interval)
returns table (outcome text, delivery text, event text, at timestamptz, timeout_ms int) language plpgsql as $$
declare
  v_now timestamptz := posthaste.now_ms();
  v_event text := 'evt_' || posthaste.id_time(v_now) || posthaste.id_random();
  v_delivery text := 'dlv_' || posthaste.id_time(v_now) || posthaste.id_random();
  v_shard smallint;
  v_timeout int;
begin
  select t.shard into v_shard from posthaste.tenants t where t.id = p_tenant and t.deleted_at is null;
  if v_shard is null then
    return query select 'no_tenant', null::text, null::text, null::timestamptz, null::int;
    return;
  end if;
  select e.timeout_ms into v_timeout from posthaste.endpoints e where e.id = p_endpoint and e.tenant = p_tenant and e.state <> 'deleted';
  if v_timeout is null then
    return query select 'no_endpoint', null::text, null::text, null::timestamptz, null::int;
    return;
  end if;
  insert into posthaste.work (delivery, tenant, endpoint, event, event_at, event_type, sequence, created_at, shard,
    kind, lane, state, due_at, deadline, scan_at)
  values (v_delivery, p_tenant, p_endpoint, v_event, v_now, p_type, 0, v_now, v_shard,
    'test', 'retry', 'ready', v_now, v_now + v_timeout * interval '1 millisecond' + p_slack, v_now)
  on conflict (endpoint) where kind = 'test' do nothing;
  if not found then
    return query select 'busy', null::text, null::text, null::timestamptz, null::int;
    return;
  end if;
  insert into posthaste.events (tenant, created_at, id, type, raw, content_type, version, occurred_at, body, test)
  values (p_tenant, v_now, v_event, p_type, false, 'application/json', null, v_now, p_body, true);
  return query select 'made', v_delivery, v_event, v_now, v_timeout;
end $$;

-- Tests that wait for somebody to send them: found by an index of their own, so at once behind any backlog.
create or replace function posthaste.scan_tests(p_shards int[], p_limit int, p_alive interval)
returns table (delivery text, generation int, tenant text, endpoint text, event text, event_type text) language sql volatile as $$
  with due as (
    select w.delivery from posthaste.work w
    where w.kind = 'test' and w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.state in ('ready', 'retrying')
      and not w.workflow and w.deadline > statement_timestamp() and not w.cancel_requested
    limit p_limit for update of w skip locked
  )
  update posthaste.work w set workflow = true, scans = 0, scan_at = clock_timestamp() + p_alive
  from due d where w.delivery = d.delivery
  returning w.delivery, w.generation, w.tenant, w.endpoint, w.event, w.event_type
$$;
