-- Why an attempt was followed by what followed: the rule that decided, the time the delivery's own schedule would
-- have taken, and what the receiver asked for. src/domain/decide.ts names the rules.
alter table posthaste.attempts add column rule text;
alter table posthaste.attempts add column own_due_at timestamptz;
alter table posthaste.attempts add column retry_after_s integer;
