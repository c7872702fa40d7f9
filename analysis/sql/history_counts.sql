-- How many complete requests did each step hold, and how many failed? One row per step; `step` is its start in seconds since 1970.
select step, sum(requests)::bigint as requests, sum(errors)::bigint as errors
from (
    select epoch_us(minute) // 1000000 // $step_s::bigint * $step_s::bigint as step, requests, errors
    from v_rollup_counts
    where minute < $split::timestamptz
        and asked_for(minute, service, model, route, tenant, workload, $start, $end, $service, $model, $route, $tenant, $workload, $without)
    union all
    select epoch_us(start) // 1000000 // $step_s::bigint * $step_s::bigint as step, 1, (status = 'error')::integer
    from v_requests
    where complete and llm_calls > 0 and start >= $split::timestamptz
        and asked_for(start, service, model, route, tenant, workload, $start, $end, $service, $model, $route, $tenant, $workload, $without))
group by step
order by step
