-- How many model calls were made, how many failed, how many attempts are known, and what did those inside a call cost? One row over the calls of
-- the window. `further` attempts are counted without times of their own; `inside` are those whose times are known, in milliseconds and tokens.
select count(*) as calls, count(*) filter (error) as failed, count(attempts) as counted, coalesce(sum(attempts), 0)::bigint as attempts,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is null), 0)::bigint as further,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null), 0)::bigint as inside,
    coalesce(sum(wasted_ms) filter (attempts > 1), 0)::double as inside_ms, coalesce(sum(wasted_tokens) filter (attempts > 1), 0)::bigint as inside_tokens,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null and wasted_tokens is null), 0)::bigint as inside_unknown,
    coalesce(sum(attempts - 1) filter (attempts > 1 and wasted_ms is not null and retry_cause = 'slow'), 0)::bigint as inside_slow
from v_llm_calls
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($model::varchar is null or model = $model)
    and ($route::varchar is null or route = $route)
    and ($tenant::varchar is null or tenant = $tenant)
    and ($workload::varchar is null or workload = $workload)
    and not list_contains($without::varchar[], workload)
