-- How many model calls were made, how many failed, how many attempts are known, and what did those inside a call cost? One row over the calls of
-- the window. `further` attempts are counted without times of their own; `inside` are those whose times are known, in milliseconds and tokens.
-- Sums over the few calls with more than one attempt pass over the others before they are asked: a filter on each sum costs four times the CPU of all the rest.
with calls as not materialized (
    select error, attempts, wasted_ms, wasted_tokens, retry_cause
    from v_llm_calls
    where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)),
repeated as (
    select
        coalesce(sum(attempts - 1) filter (wasted_ms is null), 0)::bigint as further,
        coalesce(sum(attempts - 1) filter (wasted_ms is not null), 0)::bigint as inside,
        coalesce(sum(wasted_ms), 0)::double as inside_ms, coalesce(sum(wasted_tokens), 0)::bigint as inside_tokens,
        coalesce(sum(attempts - 1) filter (wasted_ms is not null and wasted_tokens is null), 0)::bigint as inside_unknown,
        coalesce(sum(attempts - 1) filter (wasted_ms is not null and retry_cause = 'slow'), 0)::bigint as inside_slow
    from calls
    where attempts > 1)
select *
from (select count(*) as calls, count(*) filter (error) as failed, count(attempts) as counted, coalesce(sum(attempts), 0)::bigint as attempts from calls), repeated
