-- Answers per second over the last moments (2 s): what an endpoint was really sent when it first says 429.
alter table posthaste.endpoint_state add column recent_rate real not null default 0;
