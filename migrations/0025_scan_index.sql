-- Members of a group are found by their group: only what the scanner may have to look at is in its index.
create index work_due on posthaste.work (shard, scan_at) where scan_at < 'infinity';
drop index posthaste.work_scan;

-- The same ids: a bounded repetition cost an event as much as its insert. Not checked again, for that would read every event.
alter table posthaste.events drop constraint events_id_check;
alter table posthaste.events add constraint events_id_check check (id ~ '^[A-Za-z0-9_-]+$' and length(id) <= 64) not valid;
