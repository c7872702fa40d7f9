-- From when to when does the store know of requests in the window, folded or not? One row; both null without any.
select min(first) as first, max(last) as last
from (
    select min(minute) as first, max(minute) + interval 1 minute as last
    from v_rollup_counts
    where minute < $split::timestamptz
        and asked_for(minute_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    union all
    select min(start), max(start)
    from v_requests
    where complete and llm_calls > 0 and start >= $split::timestamptz
        and asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without))
