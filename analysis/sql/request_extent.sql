-- How many complete requests does the window hold, and between which starts? One row.
select count(*) as n, min(start) as first, max(start) as last
from v_requests
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($model::varchar is null or model = $model)
    and ($route::varchar is null or route = $route)
    and ($tenant::varchar is null or tenant = $tenant)
    and ($workload::varchar is null or workload = $workload)
    and not list_contains($without::varchar[], workload)
    and complete
