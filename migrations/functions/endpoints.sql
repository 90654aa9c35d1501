-- What operators do to endpoints: pause, resume, enable, disable, delete. Each is one guarded move that tells the health
-- step and, of enable and disable, the operators' own endpoints (notices.sql). The API and the workflow's updates call
-- the same function. p_tenant null: whichever it is. Answers the state afterwards, or null when there is no such endpoint
-- (or it is deleted).
create or replace function posthaste.move_endpoint(p_tenant text, p_endpoint text, p_move text, p_reason text) returns text
language plpgsql as $$
declare
  v_state text;
  v_shard smallint;
  v_now timestamptz;
  v_next text;
begin
  select e.state into v_state from posthaste.endpoints e
  where e.id = p_endpoint and (p_tenant is null or e.tenant = p_tenant) and e.state <> 'deleted' for no key update;
  if v_state is null then
    return null;
  end if;
  v_next := case
    when p_move = 'pause' and v_state = 'active' then 'paused'
    when p_move = 'resume' and v_state = 'paused' then 'active'
    when p_move = 'enable' and v_state in ('disabled', 'paused') then 'active'
    when p_move = 'disable' and v_state in ('active', 'paused') then 'disabled'
    when p_move = 'delete' then 'deleted'
  end;
  if v_next is null and (p_move <> 'resume' or v_state <> 'active') then
    return v_state;
  end if;
  perform posthaste.lock_endpoints(array[p_endpoint]);
  v_now := clock_timestamp();
  if v_next is not null then
    update posthaste.endpoints e set state = v_next, disabled_reason = case when v_next = 'disabled' then p_reason end,
      -- What is unfinished now ends, also if the endpoint is enabled before all of it has.
      cancel_before = case when v_next in ('disabled', 'deleted') then v_now else e.cancel_before end,
      revision = e.revision + 1, updated_at = v_now
    where e.id = p_endpoint;
  end if;
  update posthaste.endpoint_state s set
    epoch = s.epoch + case when p_move = 'pause' and s.mode = 'shared' then 1 else 0 end,
    mode_since = case when p_move = 'pause' and s.mode = 'shared' then v_now else s.mode_since end,
    mode = case when p_move = 'pause' then 'pump' else s.mode end,
    -- A receiver that asked for rest, and an operator who knows better.
    pause_until = case when p_move in ('resume', 'enable') then '-infinity' else s.pause_until end,
    pump_until = case when s.pump_token is null then '-infinity' else s.pump_until end
  where s.endpoint = p_endpoint returning s.shard into v_shard;
  if v_next is distinct from 'deleted' then
    insert into posthaste.health_inbox (endpoint, shard, fact) values (p_endpoint, v_shard, json_build_object('edit', p_move));
  end if;
  if v_next = 'disabled' or (p_move = 'enable' and v_next = 'active') then
    insert into posthaste.notices (endpoint, tenant, shard, kind, at, facts)
    select e.id, e.tenant, v_shard, case v_next when 'disabled' then 'disabled' else 'enabled' end, v_now,
      json_build_object('reason', 'by an operator', 'disabledReason', case v_next when 'disabled' then coalesce(e.disabled_reason, 'operator') end)
    from posthaste.endpoints e where e.id = p_endpoint;
  end if;
  return coalesce(v_next, v_state);
end $$;
