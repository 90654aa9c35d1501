-- What the statistics of an endpoint read. It costs each attempt about 4 µs of PostgreSQL's CPU and 140 bytes of
-- WAL (docs/endpoint-health.md has the figures and what else was tried).
create index attempts_endpoint on posthaste.attempts (endpoint, started_at) include (class, duration_ms);
