-- How a pump finds new traffic among what is held: ids are in the order of time.
create index work_held_id on posthaste.work (endpoint, delivery) where held_deadline is not null;
