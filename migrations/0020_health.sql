-- Endpoint health (docs/adr/0003-endpoint-health.md): permits, breaker, pump.

-- What a claim reads and a record writes, beside the slots: one hot row an endpoint. Permits are columns, never sums.
alter table posthaste.endpoint_state
  add column shard smallint,
  add column epoch integer not null default 1,          -- grows with every change of mode
  add column mode_since timestamptz not null default now(),
  add column health text not null default 'closed' check (health in ('closed', 'open', 'half_open', 'recovering', 'misconfigured')),
  add column probe_at timestamptz,                      -- set: one probe at a time from then on; infinity: one was granted
  add column pause_until timestamptz not null default '-infinity', -- Retry-After
  add column rate real,                                 -- sends per second that health allows; null: no limit
  add column rate_limit real check (rate_limit > 0.0099 and rate_limit < 10001), -- what the operator allows
  add column tokens real not null default 2,
  add column tokens_at timestamptz not null default now(),
  add column catch_up_share real not null default 0.1 check (catch_up_share between 0 and 1),
  add column live_since timestamptz not null default '-infinity', -- rows older than this are backlog
  add column keep_pump_until timestamptz not null default '-infinity',
  add column pump_token bigint,                         -- the one pump that may send in mode pump
  add column pump_until timestamptz not null default '-infinity', -- its lease; without a token: somebody will look by then
  add column pumped bigint not null default 0,          -- grants to pumps, for the backlog's share
  add column oks bigint not null default 0,
  add column fails_in_row integer not null default 0,   -- since the last 2xx; 20 stop claims until health has looked
  add column busy_since timestamptz not null default now(), -- in flight without any answer since then
  add column send_rate real not null default 0,         -- answers per second, moving average over 30 s
  add column send_rate_at timestamptz not null default now(),
  add column test_in_flight integer not null default 0 check (test_in_flight between 0 and 1);
update posthaste.endpoint_state s set shard = t.shard from posthaste.tenants t where t.id = s.tenant;
update posthaste.endpoint_state s set mode = 'pump' from posthaste.endpoints e where e.id = s.endpoint and e.state = 'paused';
alter table posthaste.endpoint_state alter column shard set not null;
create index endpoint_state_pump on posthaste.endpoint_state (shard, tenant) where mode = 'pump';

-- Unfinished deliveries that were queued before this end when the endpoint is disabled, also if it is enabled again.
alter table posthaste.endpoints add column cancel_before timestamptz not null default '-infinity';

alter table posthaste.work
  add column queued_at timestamptz not null default now(), -- fanned out or replayed
  add column held_deadline timestamptz;                    -- the deadline, exactly while held
update posthaste.work set state = 'ready', lane = 'retry', scan_at = now() where state = 'held';
update posthaste.work set lane = 'retry' where lane = 'held';
alter table posthaste.work add constraint work_held_deadline check ((state = 'held') = (held_deadline is not null));
alter table posthaste.work drop constraint work_kind_check;
alter table posthaste.work add constraint work_kind_check check (kind in ('live', 'replay', 'test'));
-- What a pump takes. No column of it is changed by a claim in mode shared.
create index work_held on posthaste.work (endpoint, (lane = 'bulk'), held_deadline) where held_deadline is not null;

alter table posthaste.dispatches add column endpoints text[] collate "C"; -- set: a group of pumps instead of deliveries

-- The reducer's memory (src/domain/health.ts), written by the health step alone, with compare-and-swap on the version.
create table posthaste.endpoint_health (
  endpoint text collate "C" primary key references posthaste.endpoints (id),
  shard smallint not null,
  version bigint not null default 1,
  state jsonb,
  wake_at timestamptz not null default 'infinity', -- to be reduced again then, without news
  workflow boolean not null default false           -- a workflow endpoint/<id> lives for it
) with (fillfactor = 50);
create index endpoint_health_wake on posthaste.endpoint_health (shard, wake_at) where wake_at < 'infinity';
create index endpoint_health_workflow on posthaste.endpoint_health (shard) where workflow;

-- What recording calls and operators have to say to the health step. Rows are deleted by the step that used them.
create table posthaste.health_inbox (
  id bigint generated always as identity primary key,
  endpoint text collate "C" not null,
  shard smallint not null,
  at timestamptz not null default clock_timestamp(),
  fact json not null                      -- Fact of src/domain/health.ts
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index health_inbox_shard on posthaste.health_inbox (shard, id);

-- What people should hear of: one row an edge, written by the health step in the transaction that makes the edge.
create table posthaste.notices (
  id bigint generated always as identity primary key,
  endpoint text collate "C" not null,
  tenant text collate "C" not null,
  shard smallint not null,
  kind text not null,
  at timestamptz not null default clock_timestamp(),
  facts jsonb not null default '{}',
  due_at timestamptz not null default clock_timestamp(), -- of the next try to send it; infinity: done
  tries smallint not null default 0,
  sent_to text[] not null default '{}'
);
create index notices_due on posthaste.notices (shard, due_at) where due_at < 'infinity';
create index notices_endpoint on posthaste.notices (endpoint, id);
