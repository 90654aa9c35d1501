-- What is told to people when an endpoint's health changes: mail, and events to the operators' own endpoints.

-- The operators' tenant: what happens to other tenants' endpoints is sent to the endpoints of this one.
insert into posthaste.tenants (id, shard, name)
values ('posthaste', get_byte(sha256('posthaste'), 0) % 16, 'Operators: operational events of Posthaste itself')
on conflict do nothing;
insert into posthaste.tenant_sequences (tenant) values ('posthaste') on conflict do nothing;

-- Addresses that the mail server refused for good. Nobody else's mail waits for them.
alter table posthaste.notices add column refused text[] not null default '{}';
-- Edges from before there was mail are history.
update posthaste.notices set due_at = 'infinity' where due_at < 'infinity';

-- A test send is an event with one delivery of kind `test`; it is not part of the tenant's traffic.
alter table posthaste.events add column test boolean not null default false;
create or replace view posthaste.all_events as
  select tenant, created_at, id, type, raw, content_type, version, occurred_at, body, test from posthaste.events
  union all
  select tenant, created_at, id, type, raw, content_type, version, occurred_at, body, false from posthaste.kept_events;
-- One at a time per endpoint, and how the scanner finds it at once behind any backlog.
create unique index work_test on posthaste.work (endpoint) where kind = 'test';
