-- What people are told when an endpoint's health changes. Whoever makes an edge (apply_health, move_endpoint) inserts a
-- notice in the same transaction; the trigger below completes it and raises the operational event, so that an edge
-- without its event, or an event without its edge, can't be committed. src/relay/notices.ts sends the mail.

create or replace function posthaste.rfc3339(p_ms numeric) returns text language sql stable as $$
  select to_char(to_timestamp(p_ms / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The host of a URL, with its port; never a path, a query or credentials.
create or replace function posthaste.url_host(p_url text) returns text language sql immutable parallel safe as $$
  select lower(substring(p_url from '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#]+)'))
$$;

-- When the mail of an edge is due: now, or never. Edges that heal by themselves within hours are not worth one; and
-- `recovered` only to those who heard of trouble.
create or replace function posthaste.mail_due(p_endpoint text, p_kind text, p_facts jsonb) returns timestamptz language sql volatile as $$
  select case
    when p_kind in ('notice_24h', 'notice_72h', 'misconfigured', 'paused_long') then clock_timestamp()
    when p_kind = 'disabled' and p_facts ->> 'disabledReason' is distinct from 'operator' then clock_timestamp()
    when p_kind = 'recovered' and exists (
      select from posthaste.notices n where n.endpoint = p_endpoint and n.kind in ('notice_24h', 'notice_72h', 'misconfigured')
        and n.id > coalesce((select max(o.id) from posthaste.notices o where o.endpoint = p_endpoint and o.kind in ('recovered', 'disabled', 'enabled')), 0)
    ) then clock_timestamp()
    else 'infinity' end
$$;

-- The event's id is the notice's, so that it can't be raised twice. Endpoints of the operators' own tenant raise none:
-- a dead operator endpoint would else be told of its own death, for ever.
create or replace function posthaste.complete_notice() returns trigger language plpgsql as $$
begin
  new.facts := new.facts || jsonb_build_object('host', (select posthaste.url_host(e.url) from posthaste.endpoints e where e.id = new.endpoint));
  new.due_at := posthaste.mail_due(new.endpoint, new.kind, new.facts);
  if new.tenant <> 'posthaste' and exists (select from posthaste.tenants t where t.id = 'posthaste' and t.deleted_at is null) then
    perform posthaste.enqueue('posthaste', 'posthaste.endpoint.' || case new.kind when 'paused_long' then 'paused' else new.kind end,
      json_strip_nulls(json_build_object(
        'tenant', new.tenant, 'endpoint', new.endpoint, 'host', new.facts ->> 'host',
        'reason', new.facts ->> 'reason', 'disabled_reason', new.facts ->> 'disabledReason',
        'since', posthaste.rfc3339((new.facts ->> 'sinceMs')::numeric),
        'last_status', (new.facts ->> 'lastStatus')::int, 'last_class', new.facts ->> 'lastClass',
        'next_probe_at', case when new.kind <> 'paused_long' then posthaste.rfc3339((new.facts ->> 'untilMs')::numeric) end,
        'paused_until', case when new.kind = 'paused_long' then posthaste.rfc3339((new.facts ->> 'untilMs')::numeric) end,
        'held', (new.facts ->> 'held')::int)),
      'ntc_' || new.id, null, new.at);
  end if;
  return new;
end $$;

create or replace trigger complete_notice before insert on posthaste.notices for each row execute function posthaste.complete_notice();

-- Mail that is due, promised to the caller for p_lease. The promise is renewed by each mark; when it runs out, another
-- process goes on where this one stopped. What is older than p_give_up is not sent any more.
create or replace function posthaste.take_notices(p_shards int[], p_lease interval, p_give_up interval, p_limit int)
returns table (id bigint, kind text, at timestamptz, facts jsonb, tries int, endpoint text, tenant text, tenant_name text, addresses text[], expired boolean)
language sql volatile as $$
  with due as (
    select n.id from posthaste.notices n where n.shard = any (p_shards) and n.due_at <= statement_timestamp() and n.due_at < 'infinity'
    order by n.due_at limit p_limit for update skip locked
  ), taken as (
    update posthaste.notices n set tries = least(n.tries + 1, 1000),
      due_at = case when n.at < clock_timestamp() - p_give_up then 'infinity' else clock_timestamp() + p_lease end
    from due d where n.id = d.id returning n.*
  )
  select k.id, k.kind, k.at, k.facts, k.tries, k.endpoint, k.tenant, t.name,
    array(select distinct a from unnest(t.notify_emails || e.notify_emails) a
      where a <> all (k.sent_to || k.refused) and e.state <> 'deleted' and t.deleted_at is null order by a),
    k.due_at = 'infinity'
  from taken k join posthaste.endpoints e on e.id = k.endpoint join posthaste.tenants t on t.id = k.tenant
$$;
