-- Groups of a relay that has no workers in its process: offered to dispatches that run elsewhere (src/relay/offers.ts).
set local lock_timeout = '5s';
alter table posthaste.dispatches add column offered boolean not null default false;
create index dispatches_offered on posthaste.dispatches (lane, id) where offered;
