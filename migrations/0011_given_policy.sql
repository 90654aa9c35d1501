-- The retry policy as the caller wrote it, to be shown again; json keeps its text. endpoints.retry_policy is what
-- senders read.
alter table posthaste.endpoints add column if not exists retry_policy_given json;
