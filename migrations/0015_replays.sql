-- Replays: bulk resends, recoveries and bulk cancels as rows that survive whoever works on them. What a page does is in
-- functions/replays.sql; why it is built like this in docs/adr/0004-replay.md.

create table posthaste.replays (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  shard smallint not null,
  action text not null check (action in ('resend', 'cancel')),
  source text not null check (source in ('delivery', 'deliveries', 'dead_letters')),
  delivery text collate "C",             -- what to match; null: anything
  endpoint text collate "C",
  event text collate "C",
  event_type text collate "C",
  states text[],
  last_status smallint,
  last_class text collate "C",
  since timestamptz,
  until timestamptz,
  missed boolean not null default false, -- also events that this endpoint never got
  rate integer not null check (rate between 1 and 1000), -- deliveries per second
  key text collate "C" unique,           -- who asked, where the asking may be repeated: a workflow
  state text not null default 'running' check (state in ('running', 'done', 'cancelled', 'stopped')),
  reason text,                           -- why it was stopped
  phase text not null default 'deliveries' check (phase in ('deliveries', 'missed')),
  cursor_at timestamptz not null default '-infinity',
  cursor_id text collate "C" not null default '',
  counted boolean not null default false,
  total integer,                         -- matches at the beginning; null: not counted, or too many to count
  moved integer not null default 0,
  missed_made integer not null default 0,
  skipped integer not null default 0,    -- matched, and could not be moved: endpoint disabled, event expired
  waiting boolean not null default false, -- for room: docs/adr/0004-replay.md
  next_at timestamptz not null,          -- no page before
  alive_until timestamptz not null,      -- the scanner starts its workflow again after that
  created_at timestamptz not null,       -- equals the time in the id; nothing younger is matched
  updated_at timestamptz not null,
  finished_at timestamptz,
  check (source <> 'delivery' or delivery is not null),
  check (not missed or endpoint is not null),
  check ((state = 'running') = (finished_at is null))
) with (fillfactor = 70);
create index replays_tenant on posthaste.replays (tenant, id);
create index replays_running on posthaste.replays (shard, alive_until) where state = 'running';

-- How much of a replay is unfinished, without reading the other rows of a tenant. Claims don't change these columns.
create index work_bulk on posthaste.work (tenant, endpoint) where lane = 'bulk';
