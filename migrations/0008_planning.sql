-- How the hot functions are planned. PL/pgSQL keeps a plan for the life of a connection; one made while the tables
-- were empty would be a sequential scan for ever. These functions touch rows by key only, so scans are ruled out;
-- and with them JIT, which on older servers a ruled-out scan's cost would set off.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'posthaste'::regnamespace
      and p.proname in ('claim', 'record', 'give_back', 'reap', 'finish', 'fan_out', 'resend', 'cancel', 'resend_event')
  loop
    execute format('alter function %s set enable_seqscan = off', v_function);
    execute format('alter function %s set jit = off', v_function);
  end loop;
end $$;
