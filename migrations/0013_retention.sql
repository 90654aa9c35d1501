-- How long a day is kept, and what outlives it: the events that unfinished deliveries and standing dead letters still
-- need. migrations/functions/retention.sql moves and drops.

alter table posthaste.settings add column retention_days integer not null default 30 check (retention_days between 0 and 3650); -- 0: for ever

create table posthaste.kept_events (
  tenant text collate "C" not null,
  created_at timestamptz not null,
  id text collate "C" not null,
  type text collate "C" not null,
  raw boolean not null,
  content_type text not null,
  version bigint,
  occurred_at timestamptz not null,
  body bytea not null,
  primary key (tenant, created_at, id)
);

-- What readers of events ask. An event is in one of the two, never in both.
create view posthaste.all_events as
  select tenant, created_at, id, type, raw, content_type, version, occurred_at, body from posthaste.events
  union all
  select tenant, created_at, id, type, raw, content_type, version, occurred_at, body from posthaste.kept_events;

create index dead_letters_event on posthaste.dead_letters (event_at, event);
create index dead_letters_endpoint on posthaste.dead_letters (tenant, endpoint, died_at, delivery);
-- Written in the order of time: a few pages say where the old keys are.
create index event_keys_age on posthaste.event_keys using brin (created_at);
