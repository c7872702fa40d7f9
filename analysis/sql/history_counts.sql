-- How many complete requests did each step hold, and how many failed? One row per step; `step` is its start in seconds since 1970.
select step, sum(requests)::bigint as requests, sum(errors)::bigint as errors
from (
    select epoch_us(minute) // 1000000 // $step_s::bigint * $step_s::bigint as step, requests, errors
    from v_rollup_counts
    where minute < $split::timestamptz and
        ($start::timestamptz is null or minute >= $start::timestamptz)
        and ($end::timestamptz is null or minute < $end::timestamptz)
        and ($service::varchar is null or service = $service)
        and ($model::varchar is null or model = $model)
        and ($route::varchar is null or route = $route)
        and ($tenant::varchar is null or tenant = $tenant)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload)
    union all
    select epoch_us(start) // 1000000 // $step_s::bigint * $step_s::bigint as step, 1, (status = 'error')::integer
    from v_requests
    where complete and llm_calls > 0 and start >= $split::timestamptz and
        ($start::timestamptz is null or start >= $start::timestamptz)
        and ($end::timestamptz is null or start < $end::timestamptz)
        and ($service::varchar is null or service = $service)
        and ($model::varchar is null or model = $model)
        and ($route::varchar is null or route = $route)
        and ($tenant::varchar is null or tenant = $tenant)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload))
group by step
order by step
