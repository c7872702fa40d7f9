-- Which services, models, routes and tenants can the window be filtered by? One row per value, most requests first; a value counts under the other filters.
with rows as (
    select service, model, route, tenant
    from v_requests
    where ($start::timestamptz is null or start >= $start::timestamptz)
        and ($end::timestamptz is null or start < $end::timestamptz)
        and ($instance::varchar is null or instance = $instance)
        and ($workload::varchar is null or workload = $workload)
        and not list_contains($without::varchar[], workload)
        and complete),
counted as (
    select 'service' as kind, service as name, count(*) as n from rows
    where ($model::varchar is null or model = $model) and ($route::varchar is null or route = $route) and ($tenant::varchar is null or tenant = $tenant)
    group by name
    union all
    select 'model', model, count(*) from rows
    where ($service::varchar is null or service = $service) and ($route::varchar is null or route = $route) and ($tenant::varchar is null or tenant = $tenant)
    group by model
    union all
    select 'route', route, count(*) from rows
    where ($service::varchar is null or service = $service) and ($model::varchar is null or model = $model) and ($tenant::varchar is null or tenant = $tenant)
    group by route
    union all
    select 'tenant', tenant, count(*) from rows
    where ($service::varchar is null or service = $service) and ($model::varchar is null or model = $model) and ($route::varchar is null or route = $route)
    group by tenant)
select kind, name, n
from counted
where name is not null
qualify row_number() over (partition by kind order by n desc, name) <= $most
order by kind, n desc, name
