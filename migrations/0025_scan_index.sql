-- Members of a group are found by their group: only what the scanner may have to look at is in its index. Dropped first:
-- that takes the strongest lock there is, where a build and then a drop would meet whoever reads and then writes.
drop index posthaste.work_scan;
create index work_due on posthaste.work (shard, scan_at) where scan_at < 'infinity';
