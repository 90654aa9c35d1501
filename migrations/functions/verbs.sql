-- The four verbs: claim, record, give back, reap. Nothing is sent without a claim.
--
-- Every function here locks the endpoint_state rows it needs in id order first, then changes rows with statements
-- whose snapshot is younger than that lock and whose WHERE repeats what is expected. Whoever changes the token, n,
-- state or generation of a work row holds the lock of its endpoint; scan_at, dispatch and lane may change without.

-- What a record does with a delivery that has ended: out of work, into deliveries, dead ones also into the list.
create or replace function posthaste.lock_endpoints(p_endpoints text[]) returns text[] language sql volatile as $$
  select coalesce(array_agg(x.endpoint), '{}') from (
    select s.endpoint from posthaste.endpoint_state s where s.endpoint = any (p_endpoints) order by s.endpoint for update
  ) x
$$;

-- claim: the right to make attempt n. Verdicts:
--   granted   the row is yours until claim_until; send attempt n
--   busy      someone is sending; look again at until
--   early     not due before until
--   later     no slot free now
--   held      its endpoint takes no shared sending
--   expired, cancelled, disabled   it must end without another attempt: call posthaste.finish
--   stale     another n or generation than asked for
--   gone      not in work
create or replace function posthaste.claim(p_deliveries text[], p_generations int[], p_ns int[])
returns table (delivery text, verdict text, token bigint, n int, until timestamptz)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_token bigint := nextval('posthaste.claim_tokens');
  v_locked text[];
  v_now timestamptz;
begin
  v_locked := posthaste.lock_endpoints(array(select distinct w.endpoint from posthaste.work w where w.delivery = any (p_deliveries)));
  v_now := clock_timestamp();
  return query
  with seen as materialized (
    select a.delivery, a.generation, a.n as asked_n, w.n, w.endpoint, w.state, w.due_at, w.claim_until, s.mode, s.cap - s.in_flight as free,
      case when w.lane = 'bulk' then s.cap / 4 else 0 end as spared, -- replays leave a quarter of the slots to live traffic
      e.timeout_ms,
      case
        when w.delivery is null then 'gone'
        when w.generation <> a.generation then 'stale'
        when w.state = 'sending' then 'busy'
        when w.n <> a.n then 'stale'
        when not w.endpoint = any (v_locked) then 'later'
        when w.cancel_requested then 'cancelled'
        when e.state in ('disabled', 'deleted') then 'disabled'
        when w.deadline <= v_now then 'expired'
        when w.due_at > v_now then 'early'
        when w.state = 'held' or s.mode <> 'shared' or e.state = 'paused' then 'held'
      end as refusal,
      a.ord
    from unnest(p_deliveries, p_generations, p_ns) with ordinality a (delivery, generation, n, ord)
    left join posthaste.work w on w.delivery = a.delivery
    left join posthaste.endpoints e on e.id = w.endpoint
    left join posthaste.endpoint_state s on s.endpoint = w.endpoint
  ), ranked as (
    select s.*, row_number() over (partition by s.endpoint order by s.spared, s.ord) as rank from seen s where s.refusal is null
  ), moved as (
    update posthaste.work w
    set state = 'sending', n = w.n + 1, token = v_token,
      claim_until = v_now + (r.timeout_ms + 10000) * interval '1 millisecond'
    from ranked r
    where r.rank <= r.free - r.spared and w.delivery = r.delivery and w.generation = r.generation and w.n = r.asked_n
      and w.state in ('ready', 'retrying') and w.token is null and w.due_at <= v_now and v_now < w.deadline
    returning w.delivery, w.endpoint, w.n, w.claim_until
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight + m.taken
    from (select x.endpoint, count(*)::int as taken from moved x group by x.endpoint) m
    where s.endpoint = m.endpoint
  )
  select s.delivery,
    case when m.delivery is not null then 'granted' else coalesce(s.refusal, 'later') end,
    case when m.delivery is not null then v_token end,
    coalesce(m.n, s.n),
    case when m.delivery is not null then m.claim_until when s.refusal = 'busy' then s.claim_until when s.refusal in ('early', 'stale') then s.due_at end
  from seen s left join moved m on m.delivery = s.delivery;
end $$;

-- record: what came of claimed attempts, valid while the token stands, expired or not. One JSON array; fields as in
-- src/db/verbs.ts. Answers one row per attempt whose token stood: its delivery's state now. Others were stale. A batch
-- may hold a reaped attempt and its successor: they are told apart by the token.
create or replace function posthaste.record(p_endpoints text[], p_results json)
returns table (delivery text, token bigint, state text, due_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz;
begin
  perform posthaste.lock_endpoints(p_endpoints);
  v_now := clock_timestamp();
  return query
  with r as materialized (
    select * from json_to_recordset(p_results) as r (
      id text, delivery text, token bigint, n int, outcome text, reason text, due_at timestamptz, step int, burned int,
      workflow boolean, started_at timestamptz, duration_ms real, status smallint, class text, phase text, error text,
      request_url text, request_headers text, request_bytes int, head_bytes int, response_headers text,
      response_body text, response_truncated boolean, fresh_retry boolean, rule text, own_due_at timestamptz, retry_after_s int)
  ), hit as materialized (
    select r.*, w.endpoint,
      case
        when r.outcome = 'delivered' then 'delivered'
        when w.cancel_requested then 'cancelled'
        when r.outcome = 'retrying' and e.state in ('disabled', 'deleted') then 'cancelled'
        else r.outcome
      end as final,
      case
        when r.outcome = 'delivered' then null
        when w.cancel_requested then 'requested'
        when r.outcome = 'retrying' and e.state in ('disabled', 'deleted') then 'endpoint_' || e.state
        else r.reason
      end as final_reason
    from r
    join posthaste.work w on w.delivery = r.delivery and w.token = r.token and w.n = r.n and w.state = 'sending'
    join posthaste.endpoints e on e.id = w.endpoint
  ), ended as (
    delete from posthaste.work w using hit h
    where w.delivery = h.delivery and w.token = h.token and h.final <> 'retrying'
    returning h.*, w.tenant, w.event, w.event_at, w.event_type, w.sequence, w.created_at, w.kind, w.generation
  ), kept as (
    update posthaste.work w
    set state = 'retrying', lane = case when w.lane = 'bulk' then 'bulk' else 'retry' end, token = null, claim_until = null,
      due_at = h.due_at, resume_at = null, step = h.step, burned = h.burned, dispatch = null, workflow = h.workflow, scans = 0,
      scan_at = h.due_at + case when h.workflow then interval '30 seconds' else interval '0' end,
      last_status = h.status, last_class = h.class
    from hit h
    where w.delivery = h.delivery and w.token = h.token and h.final = 'retrying'
    returning h.*, w.tenant, w.event, w.event_at, w.event_type, w.sequence, w.created_at, w.kind, w.generation
  ), changed as materialized (
    -- Everything the inserts below need travels with the row: the planner takes these CTEs for single rows and would
    -- join them by nested loops, 200 x 200.
    select * from ended union all select * from kept
  ), slots as (
    update posthaste.endpoint_state s
    set in_flight = s.in_flight - c.freed, last_success_at = case when c.succeeded > 0 then v_now else s.last_success_at end
    from (
      select x.endpoint, count(*)::int as freed, count(*) filter (where x.final = 'delivered') as succeeded from changed x group by x.endpoint
    ) c
    where s.endpoint = c.endpoint
  ), finals as (
    insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at,
      kind, state, reason, n, burned, generation, last_status, last_class)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.sequence, e.created_at, v_now,
      e.kind, e.final, e.final_reason, e.n, e.burned, e.generation, e.status, e.class
    from ended e
  ), dead as (
    insert into posthaste.dead_letters (delivery, tenant, endpoint, event, event_at, event_type, generation, reason, attempts,
      last_status, last_class, died_at)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.generation, e.final_reason, e.n, e.status, e.class, v_now
    from ended e where e.final = 'dead'
    on conflict on constraint dead_letters_pkey do nothing
  ), log as (
    insert into posthaste.attempts (id, delivery, n, started_at, tenant, endpoint, event, event_type, generation, duration_ms, status,
      class, phase, error, request_url, request_headers, request_bytes, head_bytes, response_headers, response_body,
      response_truncated, fresh_retry, decision, next_due_at, rule, own_due_at, retry_after_s)
    select c.id, c.delivery, c.n, c.started_at, c.tenant, c.endpoint, c.event, c.event_type, c.generation, c.duration_ms, c.status,
      c.class, c.phase, c.error, c.request_url, c.request_headers, c.request_bytes, c.head_bytes, c.response_headers,
      decode(c.response_body, 'base64'), coalesce(c.response_truncated, false), coalesce(c.fresh_retry, false), c.final,
      case when c.final = 'retrying' then c.due_at end, c.rule, c.own_due_at, c.retry_after_s
    from changed c
  )
  select c.delivery, c.token, c.final, case when c.final = 'retrying' then c.due_at end from changed c;
end $$;

-- give back: a granted claim that was not sent. The number and the slot are free again.
create or replace function posthaste.give_back(p_endpoints text[], p_deliveries text[], p_tokens bigint[])
returns table (delivery text) language plpgsql set enable_seqscan = off set jit = off as $$
begin
  perform posthaste.lock_endpoints(p_endpoints);
  return query
  with back as (
    update posthaste.work w
    set state = case when w.step > 0 or w.lane in ('retry') then 'retrying' else 'ready' end, n = w.n - 1, token = null, claim_until = null
    from unnest(p_deliveries, p_tokens) a (delivery, token)
    where w.delivery = a.delivery and w.token = a.token and w.state = 'sending'
    returning w.delivery, w.endpoint
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight - b.freed
    from (select x.endpoint, count(*)::int as freed from back x group by x.endpoint) b where s.endpoint = b.endpoint
  )
  select b.delivery from back b;
end $$;

-- reap: claims whose worker is lost. Attempt n becomes a row of class worker_lost, the slot comes back, the
-- delivery is due at once. Only the scanner calls it, after p_grace of its own uninterrupted contact with the
-- database: after an outage, workers first record the answers they hold.
create or replace function posthaste.reap(p_shards int[], p_grace interval, p_limit int)
returns table (delivery text, n int) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_found text[];
  v_now timestamptz;
begin
  v_found := array(
    select w.delivery from posthaste.work w
    where w.shard = any (p_shards) and w.scan_at <= clock_timestamp() and w.state = 'sending' and w.claim_until + p_grace <= clock_timestamp()
    order by w.scan_at limit p_limit);
  if cardinality(v_found) = 0 then
    return;
  end if;
  perform posthaste.lock_endpoints(array(select distinct w.endpoint from posthaste.work w where w.delivery = any (v_found)));
  v_now := clock_timestamp();
  return query
  with lost as materialized (
    select w.*, e.url, e.timeout_ms, e.state as endpoint_state from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    where w.delivery = any (v_found) and w.state = 'sending' and w.claim_until + p_grace <= v_now
  ), log as (
    insert into posthaste.attempts (id, delivery, n, started_at, tenant, endpoint, event, event_type, generation, class, phase, error,
      request_url, request_headers, request_bytes, decision, next_due_at)
    select 'att_' || posthaste.id_time(l.claim_until - (l.timeout_ms + 10000) * interval '1 millisecond') || posthaste.id_random(), l.delivery, l.n,
      l.claim_until - (l.timeout_ms + 10000) * interval '1 millisecond', l.tenant, l.endpoint, l.event, l.event_type, l.generation,
      'worker_lost', 'unknown', 'The worker that held this attempt vanished; the request may have been sent and processed.',
      l.url, '[]', 0, 'unknown', v_now
    from lost l
  ), freed as (
    update posthaste.work w
    set state = 'ready', lane = case when w.lane = 'bulk' then 'bulk' else 'retry' end, token = null, claim_until = null, due_at = v_now,
      scan_at = v_now, dispatch = null, workflow = false, scans = 0, last_status = null, last_class = 'worker_lost'
    from lost l where w.delivery = l.delivery and w.token = l.token
    returning w.delivery, w.endpoint, w.n
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight - f.freed
    from (select x.endpoint, count(*)::int as freed from freed x group by x.endpoint) f where s.endpoint = f.endpoint
  )
  select f.delivery, f.n from freed f;
end $$;

-- finish: deliveries that end without another attempt: past their deadline, cancelled, or their endpoint is gone.
-- A row that is none of these, or is being sent, is left alone. `workflow`: one sleeps for it and should be told.
create or replace function posthaste.finish(p_deliveries text[])
returns table (delivery text, state text, reason text, workflow boolean) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz;
begin
  perform posthaste.lock_endpoints(array(select distinct w.endpoint from posthaste.work w where w.delivery = any (p_deliveries)));
  v_now := clock_timestamp();
  return query
  with why as materialized (
    select w.delivery,
      case when w.cancel_requested or e.state in ('disabled', 'deleted') then 'cancelled' else 'dead' end as final,
      case when w.cancel_requested then 'requested' when e.state in ('disabled', 'deleted') then 'endpoint_' || e.state else 'deadline' end as final_reason
    from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    where w.delivery = any (p_deliveries) and w.state <> 'sending'
      and (w.cancel_requested or e.state in ('disabled', 'deleted') or w.deadline <= v_now)
  ), ended as (
    delete from posthaste.work w using why y where w.delivery = y.delivery and w.state <> 'sending'
    returning w.*, y.final, y.final_reason
  ), finals as (
    insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at,
      kind, state, reason, n, burned, generation, last_status, last_class)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.sequence, e.created_at, v_now,
      e.kind, e.final, e.final_reason, e.n, e.burned, e.generation, e.last_status, e.last_class
    from ended e
  ), dead as (
    insert into posthaste.dead_letters (delivery, tenant, endpoint, event, event_at, event_type, generation, reason, attempts,
      last_status, last_class, died_at)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.generation, e.final_reason, e.n, e.last_status, e.last_class, v_now
    from ended e where e.final = 'dead'
    on conflict on constraint dead_letters_pkey do nothing
  )
  select e.delivery, e.final, e.final_reason, e.workflow from ended e;
end $$;
