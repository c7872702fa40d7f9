-- How many model calls were made, how many failed, how many attempts are known, and what did those inside a call cost? One row over the calls of
-- the window. `further` attempts are counted without times of their own; `inside` are those whose times are known, in milliseconds and tokens.
select count(*) as calls, count(*) filter (error) as failed, count(attempts) as counted, coalesce(sum(attempts), 0)::bigint as attempts,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is null), 0)::bigint as further,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null), 0)::bigint as inside,
    coalesce(sum(wasted_ms) filter (attempts > 1), 0)::double as inside_ms, coalesce(sum(wasted_tokens) filter (attempts > 1), 0)::bigint as inside_tokens,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null and wasted_tokens is null), 0)::bigint as inside_unknown,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null and retry_cause = 'slow'), 0)::bigint as inside_slow
from v_llm_calls
where asked_for(start_ns, service, model, route, tenant, workload, $start, $end, $service, $model, $route, $tenant, $workload, $without)
