-- Deliveries: `work` while unfinished (small, hot), `deliveries` when they have ended, `attempts` for ever HTTP
-- request. docs/states.md draws the moves; migrations/0005_verbs.sql makes them.

-- A shard is a hash of tenants. Its owner discovers, fans out and scans for them; the epoch fences old owners.
create table posthaste.shards (
  shard smallint primary key,
  owner text,
  epoch bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
) with (fillfactor = 50);
insert into posthaste.shards (shard) select generate_series(0, 15);

create table posthaste.processes (
  id text primary key,                   -- host/pid/random
  roles text not null,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now()
) with (fillfactor = 50);

-- A group of deliveries that one workflow dispatch/<id> works through. Alive while its activity renews it; past
-- alive_until the scanner dissolves it and its members wait for another group.
create table posthaste.dispatches (
  id text collate "C" primary key,
  shard smallint not null,
  lane text not null check (lane in ('first', 'retry', 'held', 'bulk')),
  endpoint text collate "C",             -- set: a group of this endpoint alone (one at a time)
  members integer not null,
  alive_until timestamptz not null,
  created_at timestamptz not null default now()
) with (fillfactor = 70);
create unique index dispatches_endpoint on posthaste.dispatches (endpoint) where endpoint is not null;

create sequence posthaste.claim_tokens;

create table posthaste.work (
  delivery text collate "C" primary key,
  tenant text collate "C" not null,
  endpoint text collate "C" not null,
  event text collate "C" not null,
  event_at timestamptz not null,
  event_type text collate "C" not null,
  sequence bigint not null,
  created_at timestamptz not null,       -- equals the time in the id
  shard smallint not null,
  kind text not null check (kind in ('live', 'replay')),
  lane text not null check (lane in ('first', 'retry', 'held', 'bulk')),
  state text not null check (state in ('ready', 'sending', 'retrying', 'held')),
  due_at timestamptz not null,
  deadline timestamptz not null,
  n integer not null default 0,          -- attempts made; attempt numbers are gap-free over generations
  step integer not null default 0,       -- place in the schedule
  burned integer not null default 0,     -- attempts that count for max_attempts
  generation integer not null default 1, -- grows with each replay
  token bigint,                          -- the claim; set exactly while sending
  claim_until timestamptz,
  scan_at timestamptz not null,          -- when the scanner looks after it; infinity: its dispatch does
  scans smallint not null default 0,
  dispatch text collate "C",
  workflow boolean not null default false, -- a delivery/<id> workflow lives for it
  resume_at timestamptz,                 -- set by a manual resend: the due_at that its failure goes back to
  cancel_requested boolean not null default false,
  last_status smallint,
  last_class text,
  check ((state = 'sending') = (token is not null)),
  check ((token is null) = (claim_until is null)),
  check (scan_at < 'infinity' or dispatch is not null or state = 'held')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- None of these holds a column that a claim changes: claims stay heap-only updates.
create index work_scan on posthaste.work (shard, scan_at);
create index work_dispatch on posthaste.work (dispatch) where dispatch is not null;
create index work_tenant on posthaste.work (tenant, delivery);
create index work_endpoint on posthaste.work (endpoint, delivery);
create index work_living on posthaste.work (shard) where workflow;

create table posthaste.deliveries (
  id text collate "C" not null,
  tenant text collate "C" not null,
  endpoint text collate "C" not null,
  event text collate "C" not null,
  event_at timestamptz not null,
  event_type text collate "C" not null,
  sequence bigint not null,
  created_at timestamptz not null,
  finished_at timestamptz not null,
  kind text not null,
  state text not null check (state in ('delivered', 'dead', 'cancelled')),
  reason text,                           -- why it is dead or cancelled
  n integer not null,
  burned integer not null,
  generation integer not null,
  last_status smallint,
  last_class text,
  primary key (id, created_at)
) partition by range (created_at);
create table posthaste.deliveries_default partition of posthaste.deliveries default;
create index deliveries_tenant on posthaste.deliveries (tenant, id);
create index deliveries_endpoint on posthaste.deliveries (endpoint, id);
create index deliveries_event on posthaste.deliveries (event, tenant);

create table posthaste.attempts (
  delivery text collate "C" not null,
  n integer not null,
  started_at timestamptz not null,
  id text collate "C" not null,
  tenant text collate "C" not null,
  endpoint text collate "C" not null,
  event text collate "C" not null,
  event_type text collate "C" not null,
  generation integer not null,
  duration_ms real,                      -- null: unknown (worker lost)
  status smallint,
  class text not null,                   -- src/domain/classes.ts
  phase text,
  error text,
  request_url text not null,
  request_headers text not null,         -- JSON array of [name, value], as sent; custom values as lengths
  request_bytes integer not null,        -- of the body
  head_bytes integer,
  response_headers text,                 -- JSON array of [name, value]
  response_body bytea,                   -- first 16 KiB
  response_truncated boolean not null default false,
  fresh_retry boolean not null default false, -- a reused socket died; sent again at once on a fresh one
  decision text not null,                -- delivered, retrying, dead, cancelled
  next_due_at timestamptz,
  primary key (delivery, n, started_at)
) partition by range (started_at);
create table posthaste.attempts_default partition of posthaste.attempts default;

create table posthaste.dead_letters (
  delivery text collate "C" primary key,
  tenant text collate "C" not null,
  endpoint text collate "C" not null,
  event text collate "C" not null,
  event_at timestamptz not null,
  event_type text collate "C" not null,
  generation integer not null,
  reason text not null,
  attempts integer not null,
  last_status smallint,
  last_class text,
  died_at timestamptz not null
);
create index dead_letters_tenant on posthaste.dead_letters (tenant, died_at, delivery);
