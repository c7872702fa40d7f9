-- From when to when does the store know of requests in the window, folded or not? One row; both null without any.
select min(first) as first, max(last) as last
from (
    select min(minute) as first, max(minute) + interval 1 minute as last
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
    select min(start), max(start)
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
