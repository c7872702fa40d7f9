-- Which services, models and routes can the window be filtered by? One row per value, most requests first; a value counts under the other filters.
with rows as (
    select service, model, route
    from v_requests
    where ($start::timestamptz is null or start >= $start::timestamptz)
        and ($end::timestamptz is null or start < $end::timestamptz)
        and ($tenant::varchar is null or tenant = $tenant)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload)
        and complete),
counted as (
    select 'service' as kind, service as name, count(*) as n from rows
    where ($model::varchar is null or model = $model) and ($route::varchar is null or route = $route) group by name
    union all
    select 'model', model, count(*) from rows
    where ($service::varchar is null or service = $service) and ($route::varchar is null or route = $route) group by model
    union all
    select 'route', route, count(*) from rows
    where ($service::varchar is null or service = $service) and ($model::varchar is null or model = $model) group by route)
select kind, name, n
from counted
where name is not null
qualify row_number() over (partition by kind order by n desc, name) <= $most
order by kind, n desc, name
