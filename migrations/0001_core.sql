-- Who sends to whom: settings, ids, tenants, API keys, endpoints and their secrets.
--
-- Ids are text with a prefix and 26 time-ordered Crockford characters, kept COLLATE "C" so that byte order is
-- page order: 10 characters of milliseconds, 16 random hexadecimal digits (a subset of Crockford's alphabet).

create table posthaste.settings (
  one boolean primary key default true check (one),
  max_event_bytes integer not null default 262144 check (max_event_bytes between 1024 and 16777216)
);
insert into posthaste.settings default values;

-- The 10 time characters of an id: 48 bits of Unix milliseconds, five bits a character.
create function posthaste.id_time(at timestamptz) returns text
language sql immutable parallel safe as $$
  select string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', ((ms >> s) & 31)::int + 1, 1), '' order by s desc)
  from (select floor(extract(epoch from at) * 1000)::bigint as ms) t, unnest(array[0,5,10,15,20,25,30,35,40,45]) s
$$;

-- The time in an id; finds a row's day partition from its id alone. Text that is no id gives some time or other.
create function posthaste.id_at(id text) returns timestamptz
language sql immutable parallel safe as $$
  select 'epoch'::timestamptz + interval '1 millisecond' * sum(
    greatest(0, position(substr(split_part(id, '_', 2), i, 1) in '0123456789ABCDEFGHJKMNPQRSTVWXYZ') - 1)::bigint << (5 * (10 - i)))::float8
  from generate_series(1, 10) i
$$;

-- The 16 random characters of an id (62 random bits; two bits of a version 4 UUID are fixed).
create function posthaste.id_random() returns text
language sql volatile parallel safe as $$
  select upper(right(replace(gen_random_uuid()::text, '-', ''), 16))
$$;

-- Now, cut to milliseconds: what an id can carry. A row's created_at equals the time in its id, so an id alone
-- finds its day partition.
create function posthaste.now_ms() returns timestamptz
language sql volatile parallel safe as $$
  select date_trunc('milliseconds', clock_timestamp())
$$;

create table posthaste.tenants (
  id text collate "C" primary key check (id ~ '^[A-Za-z0-9_.:-]{1,64}$'),
  shard smallint not null check (shard between 0 and 15),
  name text,
  notify_emails text[] not null default '{}',
  weight integer not null default 1 check (weight between 1 and 100),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);

-- The relay's order per tenant. Apart from tenants: it changes with every fan-out.
create table posthaste.tenant_sequences (
  tenant text collate "C" primary key,
  value bigint not null default 0
) with (fillfactor = 50);

create table posthaste.api_keys (
  id text collate "C" primary key,
  digest bytea not null unique,          -- SHA-256 of the whole key: 256 random bits need no slow hash
  name text not null,
  last4 text not null,
  created_at timestamptz not null default now(),
  revoked_at timestamptz
);

create table posthaste.endpoints (
  id text collate "C" primary key,
  tenant text collate "C" not null references posthaste.tenants (id),
  url text not null,
  description text,
  event_types text[],                    -- null: every type
  state text not null default 'active' check (state in ('active', 'paused', 'disabled', 'deleted')),
  disabled_reason text,
  revision integer not null default 1,   -- grows with every change that a sender must see
  retry_policy jsonb not null,           -- normalised by src/domain/retry-policy.ts
  deadline_ms bigint not null check (deadline_ms between 1000 and 2592000000),
  timeout_ms integer not null default 15000 check (timeout_ms between 1000 and 30000),
  headers_sealed bytea,                  -- custom headers, write-only
  headers_shown jsonb not null default '[]', -- their names and lengths, for people
  tls_sealed bytea,                      -- client certificate, key and CA bundle
  tls_shown jsonb,
  traceparent boolean not null default false,
  notify_emails text[] not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index endpoints_tenant on posthaste.endpoints (tenant, id);

create table posthaste.endpoint_secrets (
  id text collate "C" primary key,
  endpoint text collate "C" not null references posthaste.endpoints (id),
  tenant text collate "C" not null,
  kind text not null check (kind in ('hmac', 'ed25519')),
  key_id text not null,                  -- the master key that sealed it
  sealed bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz                 -- null: current; else signs until then (rotation grace)
);
create index endpoint_secrets_endpoint on posthaste.endpoint_secrets (endpoint);

-- What a claim locks: small, hot, one row an endpoint. Slots are a column, never a sum over rows.
create table posthaste.endpoint_state (
  endpoint text collate "C" primary key references posthaste.endpoints (id),
  tenant text collate "C" not null,
  mode text not null default 'shared' check (mode in ('shared', 'pump')),
  cap integer not null default 10 check (cap between 1 and 1000),
  in_flight integer not null default 0 check (in_flight >= 0),
  last_success_at timestamptz
) with (fillfactor = 50);
