-- What the statistics of an endpoint read. The first costs each attempt about 4 µs of PostgreSQL's CPU and 140 bytes of
-- WAL (docs/endpoint-health.md has the figures and what else was tried); the second is written when a delivery dies.
create index attempts_endpoint on posthaste.attempts (endpoint, started_at) include (class, duration_ms);
create index dead_letters_endpoint on posthaste.dead_letters (endpoint, died_at);
