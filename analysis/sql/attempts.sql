-- How many model calls were made, how many failed, and how many attempts did their clients count? One row over the calls of the window.
select count(*) as calls, count(*) filter (error) as failed, count(attempts) as counted, coalesce(sum(attempts), 0)::bigint as attempts,
    coalesce(sum(greatest(attempts - 1, 0)), 0)::bigint as further
from v_llm_calls
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($model::varchar is null or model = $model)
    and ($route::varchar is null or route = $route)
    and ($tenant::varchar is null or tenant = $tenant)
    and ($workload::varchar is null or workload = $workload)
    and not list_contains($without::varchar[], workload)
