-- The way in: a producer's transaction writes an event and its outbox row, nothing else.
--
-- producer → posthaste.enqueue(…) ─┐
-- API      → posthaste.accept(…)  ─┴─▶ events (append-only, by day) + outbox (deleted by the fan-out)
--
-- Read next: src/relay/relay.ts, which finds outbox rows and turns them into deliveries.

create table posthaste.events (
  tenant text collate "C" not null,
  created_at timestamptz not null,
  id text collate "C" not null check (id ~ '^[A-Za-z0-9_-]{1,64}$'),
  type text collate "C" not null,
  raw boolean not null,                  -- true: body goes out as it is; false: body is the envelope's data
  content_type text not null,
  version bigint,                        -- the producer's own version, for receivers that drop older states
  occurred_at timestamptz not null,      -- "timestamp" of the envelope
  body bytea not null,                   -- the producer's bytes, never parsed and written again
  primary key (tenant, created_at, id)
) partition by range (created_at);

-- Rows of a day nobody made a partition for land here: no producer ever fails at midnight.
create table posthaste.events_default partition of posthaste.events default;

-- Ids that callers chose, for the event retention. Not partitioned: unique per tenant whatever the day.
create table posthaste.event_keys (
  tenant text collate "C" not null,
  id text collate "C" not null,
  created_at timestamptz not null,
  content_hash bytea not null,
  primary key (tenant, id)
);

create table posthaste.idempotency_keys (
  tenant text collate "C" not null,
  key text collate "C" not null,
  request_hash bytea not null,
  response jsonb,                        -- null while the first request is still in flight
  created_at timestamptz not null default now(),
  primary key (tenant, key)
);
create index idempotency_keys_age on posthaste.idempotency_keys (created_at);

-- (xid, seq) orders rows by the transaction that wrote them. A late commit is a row whose xid was in progress
-- when a scan passed it, so it can be found by xid alone: see src/relay/discovery.ts.
create table posthaste.outbox (
  tenant text collate "C" not null,
  xid xid8 not null default pg_current_xact_id(),
  seq bigint generated always as identity,
  shard smallint not null,
  event text collate "C" not null,
  event_at timestamptz not null,
  type text collate "C" not null,
  primary key (tenant, xid, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index outbox_discovery on posthaste.outbox (shard, xid, seq) include (tenant);

-- What the relay made of an event: its place in the tenant's order, kept also when nobody subscribed, so that a
-- later replay rebuilds the same bytes.
create table posthaste.event_fanouts (
  tenant text collate "C" not null,
  event_at timestamptz not null,
  event text collate "C" not null,
  sequence bigint not null,
  deliveries integer not null,
  fanned_out_at timestamptz not null,
  primary key (tenant, event_at, event)
) partition by range (event_at);
create table posthaste.event_fanouts_default partition of posthaste.event_fanouts default;

create function posthaste.content_hash(p_type text, p_raw boolean, p_content_type text, p_version bigint, p_body bytea)
returns bytea language sql immutable parallel safe as $$
  select sha256(convert_to(p_type || E'\n' || p_raw || E'\n' || p_content_type || E'\n' || coalesce(p_version::text, '') || E'\n', 'UTF8') || p_body)
$$;

-- One event, inside the caller's transaction. SQLSTATEs: PHTEN unknown tenant, PHTYP bad type, PHFID bad id,
-- PHBIG too large, PHDUP same id with other content. Returns the event id (webhook-id).
create function posthaste.enqueue_bytes(
  p_tenant text, p_type text, p_body bytea, p_raw boolean, p_content_type text,
  p_id text, p_version bigint, p_timestamp timestamptz
) returns text language plpgsql as $$
declare
  v_shard smallint;
  v_at timestamptz := posthaste.now_ms();
  v_id text := p_id;
  v_hash bytea;
  v_max integer;
begin
  select t.shard, s.max_event_bytes into v_shard, v_max
  from posthaste.tenants t, posthaste.settings s where t.id = p_tenant and t.deleted_at is null;
  if v_shard is null then
    raise exception 'unknown tenant %', coalesce(p_tenant, 'NULL') using errcode = 'PHTEN', hint = 'Create it first: PUT /v1/tenants/{tenant}.';
  end if;
  if p_type is null or p_type !~ '^[A-Za-z0-9_.:/-]{1,128}$' then
    raise exception 'bad event type %', coalesce(p_type, 'NULL') using errcode = 'PHTYP', hint = 'Use 1 to 128 of A-Z a-z 0-9 _ . : / -';
  end if;
  if p_body is null then
    raise exception 'data is null' using errcode = 'PHTYP', hint = 'Pass a JSON value; SQL NULL is not one, ''null'' is.';
  end if;
  if p_version < 0 then
    raise exception 'bad version %', p_version using errcode = 'PHTYP', hint = 'Use a whole number from 0 on.';
  end if;
  if p_timestamp < '0001-01-01 00:00+00' or p_timestamp >= '10000-01-01 00:00+00' then
    raise exception 'bad timestamp %', p_timestamp using errcode = 'PHTYP', hint = 'Use a time that RFC 3339 can write: the years 1 to 9999.';
  end if;
  if p_content_type is null or length(p_content_type) > 100
    or p_content_type !~ '^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*[!-~])?$' then
    raise exception 'bad content type' using errcode = 'PHTYP', hint = 'Use a media type of up to 100 characters, such as application/xml.';
  end if;
  if octet_length(p_body) > v_max then
    raise exception 'event of % bytes, more than %', octet_length(p_body), v_max using errcode = 'PHBIG', hint = 'Send a reference instead, or raise POSTHASTE_MAX_EVENT_BYTES.';
  end if;
  if v_id is null then
    v_id := 'evt_' || posthaste.id_time(v_at) || posthaste.id_random();
  else
    if v_id !~ '^[A-Za-z0-9_-]{1,64}$' then
      raise exception 'bad event id %', v_id using errcode = 'PHFID', hint = 'Use 1 to 64 of A-Z a-z 0-9 _ -';
    end if;
    v_hash := posthaste.content_hash(p_type, p_raw, p_content_type, p_version, p_body);
    insert into posthaste.event_keys (tenant, id, created_at, content_hash)
    values (p_tenant, v_id, v_at, v_hash) on conflict do nothing;
    if not found then
      perform 1 from posthaste.event_keys k where k.tenant = p_tenant and k.id = v_id and k.content_hash = v_hash;
      if not found then
        raise exception 'event % exists with other content', v_id using errcode = 'PHDUP', hint = 'Use a new id for a new event.';
      end if;
      return v_id;
    end if;
  end if;
  -- The xid must exist before the sequence number is drawn; taking it here makes that plain.
  perform pg_current_xact_id();
  insert into posthaste.events (tenant, created_at, id, type, raw, content_type, version, occurred_at, body)
  values (p_tenant, v_at, v_id, p_type, p_raw, p_content_type, p_version, coalesce(p_timestamp, v_at), p_body);
  insert into posthaste.outbox (tenant, shard, event, event_at, type) values (p_tenant, v_shard, v_id, v_at, p_type);
  return v_id;
end $$;

-- The producers' call. `data` is json, not jsonb: json keeps its text (key order, spaces, big integers).
create function posthaste.enqueue(
  tenant text, type text, data json, id text default null, version bigint default null, "timestamp" timestamptz default null
) returns text language sql volatile as $$
  select posthaste.enqueue_bytes($1, $2, convert_to($3::text, 'UTF8'), false, 'application/json', $4, $5, $6)
$$;

-- The same for bytes that go out as they are, with their own content type.
create function posthaste.enqueue_raw(
  tenant text, type text, body bytea, content_type text, id text default null, version bigint default null
) returns text language sql volatile as $$
  select posthaste.enqueue_bytes($1, $2, $3, true, $4, $5, $6, null)
$$;

-- The API's call: a group of events with ids of ours, one statement, one commit. Events of unknown tenants are
-- left out of the answer; everything else was checked by the API.
create function posthaste.accept(
  p_tenants text[], p_ids text[], p_ats timestamptz[], p_types text[], p_raws boolean[], p_content_types text[],
  p_versions bigint[], p_occurred timestamptz[], p_bodies bytea[]
) returns table (tenant text, id text) language sql volatile as $$
  with asked as (
    select a.*, t.shard
    from unnest(p_tenants, p_ids, p_ats, p_types, p_raws, p_content_types, p_versions, p_occurred, p_bodies)
      with ordinality as a (tenant, id, at, type, raw, content_type, version, occurred_at, body, ord)
    join posthaste.tenants t on t.id = a.tenant and t.deleted_at is null
  ), e as (
    insert into posthaste.events (tenant, created_at, id, type, raw, content_type, version, occurred_at, body)
    select a.tenant, a.at, a.id, a.type, a.raw, a.content_type, a.version, coalesce(a.occurred_at, a.at), a.body from asked a
  ), o as (
    insert into posthaste.outbox (tenant, shard, event, event_at, type)
    select a.tenant, a.shard, a.id, a.at, a.type from asked a order by a.ord
  )
  select a.tenant, a.id from asked a
$$;

-- Day partitions, made ahead. LIKE + ATTACH instead of PARTITION OF: it takes no exclusive lock on the parent, but
-- one on the default partition. Producers and senders queue behind that lock, so it is waited for briefly: a table
-- whose default partition is in use (a long transaction, a dump) gets its days at the next call. A day whose rows
-- already sit in the default partition, or arrive there meanwhile, stays there. The answer counts what was made.
create function posthaste.ensure_partitions(p_days integer default 14) returns integer language plpgsql
set lock_timeout = '300ms' as $$
declare
  v_parent text;
  v_column text;
  v_day date;
  v_name text;
  v_made integer := 0;
  v_taken boolean;
begin
  if not pg_try_advisory_xact_lock(7407301) then
    return 0;                            -- another process is making them
  end if;
  for v_parent, v_column in values ('events', 'created_at'), ('event_fanouts', 'event_at'), ('deliveries', 'created_at'), ('attempts', 'started_at') loop
    for v_day in select d::date from generate_series((now() at time zone 'UTC')::date - 1, (now() at time zone 'UTC')::date + p_days, interval '1 day') d loop
      v_name := v_parent || '_' || to_char(v_day, 'YYYYMMDD');
      continue when to_regclass('posthaste.' || v_name) is not null;
      execute format('select exists (select from posthaste.%I where %I >= %L and %I < %L)', v_parent || '_default', v_column, v_day::text || ' 00:00+00', v_column, (v_day + 1)::text || ' 00:00+00') into v_taken;
      continue when v_taken;
      begin
        execute format('create table posthaste.%I (like posthaste.%I including defaults including constraints)', v_name, v_parent);
        execute format('alter table posthaste.%I attach partition posthaste.%I for values from (%L) to (%L)', v_parent, v_name, v_day::text || ' 00:00+00', (v_day + 1)::text || ' 00:00+00');
        v_made := v_made + 1;
      exception
        when lock_not_available then exit;
        when check_violation then null;  -- a row of that day was committed just now
      end;
    end loop;
  end loop;
  return v_made;
end $$;
