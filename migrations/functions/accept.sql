-- The way in for events that carry a key or an id of their own.

drop function if exists posthaste.accept_keyed(int, boolean, text[], text[], bytea[], int[], text[], boolean[], timestamptz[], text[], boolean[], text[], bigint[], timestamptz[], bytea, int[]);
drop function if exists posthaste.unpack(bytea, int[]);

-- accept_keyed: a group of requests that carry an Idempotency-Key or whose events have own ids.
--
-- Both key tables are written first, in key order, with a short lock timeout: whoever holds the same key elsewhere
-- (another API process, a producer's open transaction) makes this call fail with 55P03 as a whole, and its members
-- come back singly with a longer one. The caller puts no two requests with a common key or id into one group.
--
-- One row per event, outcome:
--   accepted    written
--   duplicate   the same id with the same content exists: id and at of the first
--   conflict    the same id with other content exists (p_atomic: SQLSTATE PHDUP instead, nothing is written)
--   replayed    the Idempotency-Key was used by the same request: `response` holds the answers of then
--   reused      the Idempotency-Key was used by another request
--   again       the key's row vanished meanwhile: repeat
--   no_tenant   unknown or deleted tenant
create or replace function posthaste.accept_keyed(
  p_lock_ms int, p_atomic boolean,
  p_tenants text[], p_keys text[], p_hashes bytea[],             -- one per request; key null: none
  p_requests int[],                                              -- one per event: index of its request, from 1
  p_ids text[], p_own boolean[], p_ats timestamptz[], p_types text[], p_raws boolean[], p_content_types text[],
  p_versions bigint[], p_occurred timestamptz[], p_bodies bytea[]
) returns table (event int, outcome text, id text, at timestamptz, response jsonb) language plpgsql
-- Every lookup is by a few whole keys, but plans are made when the tables are empty and kept when they are large:
-- without this the key tables were read from end to end (3 ms a call at 10,000 keys, and growing; now 1 ms at any size).
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_known boolean[];                     -- per request: the tenant exists
  v_won text[];                          -- tenant/key of the idempotency rows that are ours
  v_keyed text[];                        -- outcome per request whose key was taken
  v_stored jsonb[];
  v_fresh text[];                        -- tenant/id of the event_keys rows that are ours
  v_outcomes text[];                     -- per event
  v_ats timestamptz[];
  v_bad int[];
begin
  perform set_config('lock_timeout', p_lock_ms || 'ms', true);
  v_known := array(
    select t.id is not null from unnest(p_tenants) with ordinality r (tenant, ord)
    left join posthaste.tenants t on t.id = r.tenant and t.deleted_at is null order by r.ord);

  with mine as (
    insert into posthaste.idempotency_keys (tenant, key, request_hash)
    select r.tenant, r.key, r.hash from unnest(p_tenants, p_keys, p_hashes, v_known) r (tenant, key, hash, known)
    where r.key is not null and r.known order by r.tenant, r.key
    on conflict do nothing returning tenant, key
  )
  select coalesce(array_agg(m.tenant || '/' || m.key), '{}') into v_won from mine m;

  select array_agg(x.outcome order by x.ord), array_agg(x.response order by x.ord) into v_keyed, v_stored from (
    select r.ord, k.response, case
        when not r.known then 'no_tenant'
        when r.key is null or r.tenant || '/' || r.key = any (v_won) then null
        when k.key is null or k.response is null then 'again'
        when k.request_hash <> r.hash then 'reused'
        else 'replayed' end as outcome
    from unnest(p_tenants, p_keys, p_hashes, v_known) with ordinality r (tenant, key, hash, known, ord)
    left join posthaste.idempotency_keys k on k.tenant = r.tenant and k.key = r.key) x;

  with mine as (
    insert into posthaste.event_keys (tenant, id, created_at, content_hash)
    select p_tenants[e.request], e.id, e.at, posthaste.content_hash(e.type, e.raw, e.content_type, e.version, e.body)
    from unnest(p_requests, p_ids, p_own, p_ats, p_types, p_raws, p_content_types, p_versions, p_bodies)
      as e (request, id, own, at, type, raw, content_type, version, body)
    where e.own and v_keyed[e.request] is null order by p_tenants[e.request], e.id
    on conflict do nothing returning event_keys.tenant, event_keys.id
  )
  select coalesce(array_agg(m.tenant || '/' || m.id), '{}') into v_fresh from mine m;

  select array_agg(x.outcome order by x.ord), array_agg(x.at order by x.ord) into v_outcomes, v_ats from (
    select e.ord, case
        when v_keyed[e.request] is not null then v_keyed[e.request]
        when not e.own then 'accepted'
        when p_tenants[e.request] || '/' || e.id = any (v_fresh) and e.nth = 1 then 'accepted'
        when k.id is null then 'again'
        when k.content_hash = posthaste.content_hash(e.type, e.raw, e.content_type, e.version, e.body) then 'duplicate'
        else 'conflict' end as outcome,
      coalesce(k.created_at, e.at) as at
    from (
      select u.*, row_number() over (partition by p_tenants[u.request], u.id order by u.ord) as nth
      from unnest(p_requests, p_ids, p_own, p_ats, p_types, p_raws, p_content_types, p_versions, p_bodies)
        with ordinality as u (request, id, own, at, type, raw, content_type, version, body, ord)) e
    left join posthaste.event_keys k on e.own and k.tenant = p_tenants[e.request] and k.id = e.id) x;

  if p_atomic then
    v_bad := array(select o.ord::int from unnest(v_outcomes) with ordinality o (outcome, ord) where o.outcome = 'conflict' order by o.ord);
    if cardinality(v_bad) > 0 then
      raise exception 'events exist with other content' using errcode = 'PHDUP', detail = array_to_string(v_bad, ',');
    end if;
    if 'again' = any (v_outcomes) then
      raise exception 'a key vanished meanwhile' using errcode = '40001';
    end if;
  end if;

  perform posthaste.accept(
    array_agg(p_tenants[p_requests[o.ord]] order by o.ord), array_agg(p_ids[o.ord] order by o.ord), array_agg(p_ats[o.ord] order by o.ord),
    array_agg(p_types[o.ord] order by o.ord), array_agg(p_raws[o.ord] order by o.ord), array_agg(p_content_types[o.ord] order by o.ord),
    array_agg(p_versions[o.ord] order by o.ord), array_agg(p_occurred[o.ord] order by o.ord), array_agg(p_bodies[o.ord] order by o.ord))
  from unnest(v_outcomes) with ordinality o (outcome, ord) where o.outcome = 'accepted'
  having count(*) > 0;

  -- A key is spent by an answer of 202 only: after a conflict the same key may carry the corrected request.
  update posthaste.idempotency_keys k set response = a.response
  from (
    select p_requests[o.ord] as request,
      jsonb_agg(jsonb_build_object('id', p_ids[o.ord], 'at', floor(extract(epoch from v_ats[o.ord]) * 1000)::bigint) order by o.ord) as response
    from unnest(v_outcomes) with ordinality o (outcome, ord) group by 1 having bool_and(o.outcome in ('accepted', 'duplicate'))
  ) a
  where k.tenant = p_tenants[a.request] and k.key = p_keys[a.request] and k.tenant || '/' || k.key = any (v_won);
  if cardinality(v_won) > 0 then
    delete from posthaste.idempotency_keys k using unnest(p_tenants, p_keys) r (tenant, key)
    where k.tenant = r.tenant and k.key = r.key and k.response is null and k.tenant || '/' || k.key = any (v_won);
  end if;

  return query
  select o.ord::int, o.outcome, p_ids[o.ord], v_ats[o.ord], v_stored[p_requests[o.ord]]
  from unnest(v_outcomes) with ordinality o (outcome, ord) order by o.ord;
end $$;
