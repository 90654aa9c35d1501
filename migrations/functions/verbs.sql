-- The four verbs: claim, record, give back, reap (a pump claims by pump.sql). Nothing is sent without a claim.
--
-- Statements are planned once per connection, often while `work` is all but empty, and then meet a burst: a join that
-- reads the whole table looks as cheap as one by key. So joins are by key, or not at all (enable_*).
--
-- Every function here locks the endpoint_state rows it needs in id order first, then changes rows with statements
-- whose snapshot is younger than that lock and whose WHERE repeats what is expected. Whoever changes the token, n,
-- state or generation of a work row holds the lock of its endpoint; scan_at, dispatch and lane may change without.

-- Locks the state of endpoints in id order; answers those that exist, sorted.
create or replace function posthaste.lock_endpoints(p_endpoints text[]) returns text[] language sql volatile as $$
  select coalesce(array_agg(x.endpoint), '{}') from (
    select s.endpoint from posthaste.endpoint_state s where s.endpoint = any (p_endpoints) order by s.endpoint for update
  ) x
$$;

-- claim: the right to make attempt n. Verdicts:
--   granted   the row is yours until claim_until; send attempt n
--   busy      someone is sending; look again at until
--   early     not due before until
--   later     no slot or token free now
--   held      its endpoint takes no shared sending (mode pump): the row now waits for the pump
--   expired, cancelled, disabled   it must end without another attempt: call posthaste.finish
--   stale     another n or generation than asked for
--   gone      not in work
--
-- Most calls are granted as they are asked for, by one statement that reads each row once; what that leaves is looked at
-- again, to say why.
drop function if exists posthaste.claim(text[], int[], int[]);
create or replace function posthaste.claim(
  p_endpoints text[],                          -- whose deliveries they are, each once
  p_deliveries text[], p_ats int[],            -- per delivery: the place of its endpoint there,
  p_ranks int[],                               -- its turn among those of its endpoint in this call, tests apart, from 1
  p_generations int[], p_ns int[])
returns table (delivery text, verdict text, token bigint, n int, until timestamptz, epoch int, revision int)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_token bigint := nextval('posthaste.claim_tokens');
  v_pumped boolean[]; -- these have an element for each of p_endpoints; null: there is no such endpoint
  v_epochs int[];
  v_slots int[];
  v_bulk_slots int[];
  v_test_slots int[];
  v_tokens real[];
  v_states text[];
  v_revisions int[];
  v_timeouts int[];
  v_cancels timestamptz[];
  v_now timestamptz;
  v_granted bigint;
begin
  perform posthaste.lock_endpoints(p_endpoints);
  v_now := clock_timestamp();
  select array_agg(x.mode = 'pump'), array_agg(x.epoch), array_agg(x.slots),
    -- Replays leave a quarter of the slots to live traffic.
    array_agg(least(x.slots, greatest(0, x.cap - x.cap / 4 - x.in_flight))),
    array_agg(1 - x.test_in_flight), array_agg(x.tokens),
    array_agg(x.state), array_agg(x.revision), array_agg(x.timeout_ms), array_agg(x.cancel_before)
  into v_pumped, v_epochs, v_slots, v_bulk_slots, v_test_slots, v_tokens, v_states, v_revisions, v_timeouts, v_cancels
  from (
    select s.mode, s.epoch, p.slots, s.cap, s.in_flight, s.test_in_flight, p.tokens, e.state, e.revision, e.timeout_ms, e.cancel_before
    from unnest(p_endpoints) with ordinality a (endpoint, at)
    left join posthaste.endpoint_state s on s.endpoint = a.endpoint
    left join posthaste.endpoints e on e.id = s.endpoint
    left join lateral posthaste.permits(s, v_now) p on true
    order by a.at
  ) x;
  return query
  with moved as (
    update posthaste.work w
    set state = 'sending', n = w.n + 1, token = v_token, claim_until = v_now + (v_timeouts[a.at] + 10000) * interval '1 millisecond'
    from unnest(p_deliveries, p_ats, p_ranks, p_generations, p_ns) a (delivery, at, rank, generation, n)
    where w.delivery = a.delivery and w.endpoint is not distinct from p_endpoints[a.at] and w.generation = a.generation and w.n = a.n
      and w.state in ('ready', 'retrying') and w.due_at <= v_now and v_now < w.deadline and not w.cancel_requested
      and v_states[a.at] <> 'deleted'
      -- A test send asks for its own slot, whatever the state of the endpoint.
      and (w.kind = 'test' or (not v_pumped[a.at] and v_states[a.at] <> 'disabled' and w.queued_at > v_cancels[a.at]))
      and a.rank <= case when w.kind = 'test' then v_test_slots[a.at] when w.lane = 'bulk' then v_bulk_slots[a.at] else v_slots[a.at] end
    returning w.delivery, w.n, w.claim_until, a.at, w.kind = 'test' as test
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight + m.taken, test_in_flight = s.test_in_flight + m.tests,
      busy_since = case when s.in_flight = 0 then v_now else s.busy_since end,
      tokens = coalesce(v_tokens[m.at] - m.taken, s.tokens), tokens_at = case when v_tokens[m.at] is null then s.tokens_at else v_now end
    from (
      select x.at, count(*) filter (where not x.test)::int as taken, count(*) filter (where x.test)::int as tests from moved x group by x.at
    ) m
    where s.endpoint = p_endpoints[m.at]
  )
  select m.delivery, 'granted', v_token, m.n, m.claim_until, v_epochs[m.at], v_revisions[m.at] from moved m;
  get diagnostics v_granted = row_count;
  if v_granted = cardinality(p_deliveries) then
    return;
  end if;
  return query
  with seen as materialized (
    select a.delivery, a.at, a.n as asked_n, w.n, w.due_at, w.claim_until,
      case
        when w.delivery is null then 'gone'
        when w.generation <> a.generation then 'stale'
        when w.state = 'sending' then 'busy'
        when w.n <> a.n then 'stale'
        when v_pumped[a.at] is null or w.endpoint <> p_endpoints[a.at] then 'later'
        when w.cancel_requested then 'cancelled'
        when v_states[a.at] = 'deleted' or (w.kind <> 'test' and (v_states[a.at] = 'disabled' or w.queued_at <= v_cancels[a.at])) then 'disabled'
        when w.deadline <= v_now then 'expired'
        when w.due_at > v_now then 'early'
        when v_pumped[a.at] and w.kind <> 'test' then 'held'
        else 'later'
      end as refusal
    from unnest(p_deliveries, p_ats, p_generations, p_ns) a (delivery, at, generation, n)
    left join posthaste.work w on w.delivery = a.delivery
    where w.token is distinct from v_token
  ), held as (
    update posthaste.work w
    set state = 'held', held_deadline = w.deadline, dispatch = null, scan_at = w.deadline
    from seen r
    where r.refusal = 'held' and w.delivery = r.delivery and w.n = r.asked_n and w.state in ('ready', 'retrying') and w.token is null
  )
  select s.delivery, s.refusal, null::bigint, s.n, case when s.refusal = 'busy' then s.claim_until when s.refusal in ('early', 'stale') then s.due_at end,
    v_epochs[s.at], v_revisions[s.at]
  from seen s;
end $$;

-- record: what came of claimed attempts, valid while the token stands, expired or not. One array per column, fields as
-- in src/db/verbs.ts; a column that is null throughout may be a null array. Answers one row per attempt whose token
-- stood, by its place: its delivery's state now. Others were stale. A batch may hold a reaped attempt and its
-- successor: they are told apart by the token.
--
-- Only what decides flows through the statement; what is merely written is fetched from its array by place. The planner
-- takes these CTEs for single rows, so nothing of theirs is joined but to tables by key and to one row per endpoint.
drop function if exists posthaste.record(text[], json);
create or replace function posthaste.record(
  p_endpoints text[], p_deliveries text[], p_tokens bigint[], p_ns int[], p_outcomes text[], p_reasons text[],
  p_due_ats timestamptz[], p_steps int[], p_burned int[], p_workflows boolean[],
  p_ids text[], p_started_ats timestamptz[], p_durations real[], p_statuses smallint[], p_classes text[], p_phases text[],
  p_errors text[], p_urls text[], p_request_headers text[], p_request_bytes int[], p_head_bytes int[],
  p_response_headers text[], p_response_bodies bytea[], p_truncated boolean[], p_fresh_retries boolean[],
  p_rules text[], p_own_due_ats timestamptz[], p_retry_afters int[],
  p_healths text[], p_epochs int[], p_revisions int[], p_pause_untils timestamptz[])
returns table (place int, state text, due_at timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now timestamptz;
begin
  perform posthaste.lock_endpoints(p_endpoints);
  v_now := clock_timestamp();
  return query
  with won as (
    -- Delivered is delivered, whatever the endpoint has come to meanwhile.
    delete from posthaste.work w using unnest(p_deliveries, p_tokens) with ordinality as r (delivery, token, i)
    where p_outcomes[r.i] = 'delivered' and w.delivery = r.delivery and w.token = r.token and w.n = p_ns[r.i] and w.state = 'sending'
    returning r.i::int as i, 'delivered' as final, null::text as final_reason, false as current, w.delivery, w.endpoint, w.tenant, w.event,
      w.event_at, w.event_type, w.sequence, w.created_at, w.kind, w.generation
  ), hit as materialized (
    select r.i::int as i, r.delivery, r.token, e.revision = p_revisions[r.i] as current,
      case
        when w.cancel_requested then 'cancelled'
        when p_outcomes[r.i] = 'retrying' and (e.state in ('disabled', 'deleted') or w.queued_at <= e.cancel_before) then 'cancelled'
        else p_outcomes[r.i]
      end as final,
      case
        when w.cancel_requested then 'requested'
        when p_outcomes[r.i] = 'retrying' and e.state in ('disabled', 'deleted') then 'endpoint_' || e.state
        when p_outcomes[r.i] = 'retrying' and w.queued_at <= e.cancel_before then 'endpoint_disabled'
        else p_reasons[r.i]
      end as final_reason
    from unnest(p_deliveries, p_tokens) with ordinality as r (delivery, token, i)
    join posthaste.work w on w.delivery = r.delivery and w.token = r.token and w.n = p_ns[r.i] and w.state = 'sending'
    join posthaste.endpoints e on e.id = w.endpoint
    where p_outcomes[r.i] <> 'delivered'
  ), lost as (
    delete from posthaste.work w using hit h
    where w.delivery = h.delivery and w.token = h.token and h.final <> 'retrying'
    returning h.i, h.final, h.final_reason, h.current, w.delivery, w.endpoint, w.tenant, w.event, w.event_at, w.event_type, w.sequence,
      w.created_at, w.kind, w.generation
  ), ended as (
    select * from won union all select * from lost
  ), kept as (
    update posthaste.work w
    set state = 'retrying', lane = case when w.lane = 'bulk' then 'bulk' else 'retry' end, token = null, claim_until = null,
      due_at = p_due_ats[h.i], resume_at = null, held_deadline = null, step = p_steps[h.i], burned = p_burned[h.i],
      dispatch = null, workflow = p_workflows[h.i], scans = 0,
      scan_at = p_due_ats[h.i] + case when p_workflows[h.i] then interval '30 seconds' else interval '0' end,
      last_status = p_statuses[h.i], last_class = p_classes[h.i]
    from hit h
    where w.delivery = h.delivery and w.token = h.token and h.final = 'retrying'
    returning h.i, h.final, h.final_reason, h.current, w.delivery, w.endpoint, w.tenant, w.event, w.event_at, w.event_type, w.sequence,
      w.created_at, w.kind, w.generation
  ), changed as materialized (
    select * from ended union all select * from kept
  ), tally as materialized (
    select x.endpoint, count(*)::int as freed, count(*) filter (where x.kind = 'test')::int as tests,
      count(*) filter (where p_healths[x.i] = 'ok')::int as ok, max(x.i) filter (where p_healths[x.i] = 'ok') as last_ok,
      count(*) filter (where p_healths[x.i] <> 'ok' or p_durations[x.i] > 2000)::int as remarkable,
      max(p_pause_untils[x.i]) filter (where x.current) as pause_until, max(p_epochs[x.i]) as epoch,
      max(p_started_ats[x.i]) filter (where p_healths[x.i] = 'ok') as ok_started_at,
      bool_or(x.kind = 'test' and p_healths[x.i] = 'ok') as test_ok
    from changed x group by x.endpoint
  ), remarks as materialized (
    select t.endpoint, count(*) filter (where p_healths[x.i] = 'failure')::int as fail,
      count(*) filter (where p_healths[x.i] = 'failure' and x.i > coalesce(t.last_ok, 0))::int as fail_since,
      count(*) filter (where p_healths[x.i] = 'failure' and (p_classes[x.i] = 'deadline' or p_classes[x.i] like '%timeout%'))::int as timeouts,
      count(*) filter (where p_healths[x.i] = 'throttled')::int as throttled,
      count(*) filter (where p_healths[x.i] = 'configuration')::int as config,
      count(*) filter (where p_healths[x.i] = 'neutral')::int as neutral, count(*) filter (where p_durations[x.i] > 2000)::int as slow,
      max(p_revisions[x.i]) filter (where p_classes[x.i] = 'http_410' and x.kind <> 'test') as gone_revision,
      max(p_started_ats[x.i]) filter (where p_healths[x.i] in ('failure', 'throttled')) as started_at,
      (array_agg(distinct x.delivery) filter (where p_healths[x.i] in ('failure', 'throttled')))[1:5] as deliveries,
      max(x.i) filter (where p_healths[x.i] in ('failure', 'throttled', 'configuration')) as last
    from tally t join changed x on x.endpoint = t.endpoint
    where t.remarkable > 0 group by t.endpoint
  ), slots as (
    update posthaste.endpoint_state s
    set in_flight = s.in_flight - (t.freed - t.tests), test_in_flight = s.test_in_flight - t.tests,
      oks = s.oks + t.ok, last_success_at = case when t.ok > 0 then v_now else s.last_success_at end,
      fails_in_row = case when t.ok > 0 then 0 else s.fails_in_row end + coalesce(m.fail_since, 0),
      busy_since = v_now, pause_until = greatest(s.pause_until, t.pause_until),
      send_rate = s.send_rate * exp(greatest(-40, -extract(epoch from v_now - s.send_rate_at)::float8 / 30)) + t.freed / 30.0,
      recent_rate = s.recent_rate * exp(greatest(-40, -extract(epoch from v_now - s.send_rate_at)::float8 / 2)) + t.freed / 2.0, send_rate_at = v_now
    from tally t left join remarks m on m.endpoint = t.endpoint
    where s.endpoint = t.endpoint
    returning t.endpoint, t.ok, t.epoch, t.ok_started_at, t.test_ok, t.remarkable, t.pause_until, m.fail, m.timeouts, m.throttled, m.config, m.neutral, m.slow,
      m.gone_revision, m.started_at, m.deliveries, m.last, s.shard, s.health, s.rate
  ), inbox as (
    -- Plain success of a plainly healthy endpoint is only counted, in its row.
    insert into posthaste.health_inbox (endpoint, shard, fact)
    select t.endpoint, t.shard, json_build_object('epoch', t.epoch, 'startedMs', floor(extract(epoch from t.started_at) * 1000),
      'okStartedMs', floor(extract(epoch from t.ok_started_at) * 1000), 'testOk', t.test_ok, 'ok', t.ok,
      'fail', t.fail, 'timeouts', t.timeouts, 'throttled', t.throttled, 'config', t.config, 'neutral', t.neutral, 'slow', t.slow,
      'deliveries', coalesce(t.deliveries, '{}'), 'lastStatus', p_statuses[t.last], 'lastClass', p_classes[t.last],
      'pauseUntilMs', floor(extract(epoch from t.pause_until) * 1000), 'goneRevision', t.gone_revision)
    from slots t
    where t.fail > 0 or t.throttled > 0 or t.config > 0 or t.slow > 0 or t.gone_revision is not null or t.pause_until is not null
      or t.health <> 'closed' or t.rate is not null
  ), finals as (
    insert into posthaste.deliveries (id, tenant, endpoint, event, event_at, event_type, sequence, created_at, finished_at,
      kind, state, reason, n, burned, generation, last_status, last_class)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.sequence, e.created_at, v_now,
      e.kind, e.final, e.final_reason, p_ns[e.i], p_burned[e.i], e.generation, p_statuses[e.i], p_classes[e.i]
    from ended e
  ), dead as (
    insert into posthaste.dead_letters (delivery, tenant, endpoint, event, event_at, event_type, generation, reason, attempts,
      last_status, last_class, died_at)
    select e.delivery, e.tenant, e.endpoint, e.event, e.event_at, e.event_type, e.generation, e.final_reason, p_ns[e.i],
      p_statuses[e.i], p_classes[e.i], v_now
    from ended e where e.final = 'dead' and e.kind <> 'test'
    on conflict on constraint dead_letters_pkey do nothing
  ), log as (
    insert into posthaste.attempts (id, delivery, n, started_at, tenant, endpoint, event, event_type, generation, duration_ms, status,
      class, phase, error, request_url, request_headers, request_bytes, head_bytes, response_headers, response_body,
      response_truncated, fresh_retry, decision, next_due_at, rule, own_due_at, retry_after_s)
    select p_ids[c.i], c.delivery, p_ns[c.i], p_started_ats[c.i], c.tenant, c.endpoint, c.event, c.event_type, c.generation,
      p_durations[c.i], p_statuses[c.i], p_classes[c.i], p_phases[c.i], p_errors[c.i], p_urls[c.i], p_request_headers[c.i],
      p_request_bytes[c.i], p_head_bytes[c.i], p_response_headers[c.i], p_response_bodies[c.i],
      p_truncated[c.i], p_fresh_retries[c.i], c.final,
      case when c.final = 'retrying' then p_due_ats[c.i] end, case when c.final = 'cancelled' then c.final_reason else p_rules[c.i] end,
      p_own_due_ats[c.i], p_retry_afters[c.i]
    from changed c
  )
  select c.i, c.final, case when c.final = 'retrying' then p_due_ats[c.i] end from changed c;
end $$;

-- give back: a granted claim that was not sent. The number and the slot are free again.
create or replace function posthaste.give_back(p_endpoints text[], p_deliveries text[], p_tokens bigint[])
returns table (delivery text) language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
begin
  perform posthaste.lock_endpoints(p_endpoints);
  return query
  with back as (
    update posthaste.work w
    set state = case when s.mode = 'pump' and w.kind <> 'test' then 'held' when w.step > 0 or w.lane in ('retry') then 'retrying' else 'ready' end,
      held_deadline = case when s.mode = 'pump' and w.kind <> 'test' then w.deadline end,
      scan_at = case
        when w.dispatch is not null then w.scan_at
        when s.mode = 'pump' and w.kind <> 'test' and e.state not in ('disabled', 'deleted') and w.queued_at > e.cancel_before then w.deadline
        when w.workflow then clock_timestamp() + interval '30 seconds'
        else clock_timestamp() end,
      n = w.n - 1, token = null, claim_until = null
    from unnest(p_deliveries, p_tokens) a (delivery, token), posthaste.endpoint_state s join posthaste.endpoints e on e.id = s.endpoint
    where w.delivery = a.delivery and w.token = a.token and w.state = 'sending' and s.endpoint = w.endpoint
    returning w.delivery, w.endpoint, w.kind
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight - b.freed, test_in_flight = s.test_in_flight - b.tests, tokens = s.tokens + b.freed,
      probe_at = case when s.probe_at = 'infinity' then clock_timestamp() else s.probe_at end
    from (select x.endpoint, count(*) filter (where x.kind <> 'test')::int as freed, count(*) filter (where x.kind = 'test')::int as tests from back x group by x.endpoint) b
    where s.endpoint = b.endpoint
  )
  select b.delivery from back b;
end $$;

-- reap: claims whose worker is lost. Attempt n becomes a row of class worker_lost, the slot comes back, the
-- delivery is due at once. Only the scanner calls it, after p_grace of its own uninterrupted contact with the
-- database: after an outage, workers first record the answers they hold.
create or replace function posthaste.reap(p_shards int[], p_grace interval, p_limit int)
returns table (delivery text, n int) language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_found text[];
  v_now timestamptz;
begin
  v_found := array(
    select w.delivery from posthaste.work w
    where w.shard = any (p_shards) and w.scan_at <= statement_timestamp() and w.scan_at < 'infinity' and w.state = 'sending' and w.claim_until + p_grace <= statement_timestamp()
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
      request_url, request_headers, request_bytes, decision, next_due_at, rule)
    select 'att_' || posthaste.id_time(l.claim_until - (l.timeout_ms + 10000) * interval '1 millisecond') || posthaste.id_random(), l.delivery, l.n,
      l.claim_until - (l.timeout_ms + 10000) * interval '1 millisecond', l.tenant, l.endpoint, l.event, l.event_type, l.generation,
      'worker_lost', 'unknown', 'The worker that held this attempt vanished; the request may have been sent and processed.',
      l.url, '[]', 0, 'unknown', case when not l.cancel_requested and l.endpoint_state not in ('disabled', 'deleted') and l.deadline > v_now then v_now end,
      'worker_lost'
    from lost l
  ), freed as (
    update posthaste.work w
    set state = 'ready', lane = case when w.lane = 'bulk' then 'bulk' else 'retry' end, token = null, claim_until = null, due_at = v_now,
      scan_at = v_now, dispatch = null, workflow = false, scans = 0, last_status = null, last_class = 'worker_lost'
    from lost l where w.delivery = l.delivery and w.token = l.token
    returning w.delivery, w.endpoint, w.n, w.kind
  ), slots as (
    update posthaste.endpoint_state s set in_flight = s.in_flight - (f.freed - f.tests), test_in_flight = s.test_in_flight - f.tests
    from (select x.endpoint, count(*)::int as freed, count(*) filter (where x.kind = 'test')::int as tests from freed x group by x.endpoint) f
    where s.endpoint = f.endpoint
    returning s.endpoint, s.shard, s.health, s.probe_at, f.freed
  ), inbox as (
    insert into posthaste.health_inbox (endpoint, shard, fact)
    select s.endpoint, s.shard, json_build_object('lost', s.freed, 'lastClass', 'worker_lost') from slots s where s.health <> 'closed' or s.probe_at is not null
  )
  select f.delivery, f.n from freed f;
end $$;

-- finish: deliveries that end without another attempt: past their deadline, cancelled, or their endpoint is gone.
-- Alone of all it takes no endpoint's lock, so that a hundred thousand rows of one may end while others are claimed: it
-- waits for no row, and a row that is being claimed or was replayed meanwhile no longer matches.
-- A row that is none of these, or is being sent, is left alone. `workflow`: one sleeps for it and should be told.
create or replace function posthaste.finish(p_deliveries text[])
returns table (delivery text, state text, reason text, workflow boolean) language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now timestamptz;
begin
  v_now := clock_timestamp();
  return query
  with why as materialized (
    select w.delivery, w.generation,
      case when w.cancel_requested or g.gone then 'cancelled' else 'dead' end as final,
      case when w.cancel_requested then 'requested' when e.state = 'deleted' then 'endpoint_deleted' when g.gone then 'endpoint_disabled' else 'deadline' end as final_reason
    from posthaste.work w join posthaste.endpoints e on e.id = w.endpoint
    cross join lateral (select e.state = 'deleted' or (w.kind <> 'test' and (e.state = 'disabled' or w.queued_at <= e.cancel_before)) as gone) g
    where w.delivery = any (p_deliveries) and w.state <> 'sending'
      and (w.cancel_requested or g.gone or w.deadline <= v_now)
    order by w.delivery for update of w skip locked
  ), ended as (
    delete from posthaste.work w using why y where w.delivery = y.delivery and w.generation = y.generation and w.state <> 'sending'
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
    from ended e where e.final = 'dead' and e.kind <> 'test'
    on conflict on constraint dead_letters_pkey do nothing
  )
  select e.delivery, e.final, e.final_reason, e.workflow from ended e;
end $$;
