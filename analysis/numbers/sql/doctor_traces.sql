-- In how many of its traces does each service say who asked, and for what? One row per service; any one span of a trace may say it for the whole.
select service, count(*) as traces, count(*) filter (session) as session, count(*) filter (tenant) as tenant, count(*) filter ("user") as "user",
    count(*) filter (route) as route
from (
    select service, trace_key, bool_or(session is not null) as session, bool_or(tenant is not null) as tenant, bool_or(user_hash is not null) as "user",
        bool_or(route is not null) as route
    from v_spans
    where ($start::timestamptz is null or start >= $start::timestamptz)
        and ($end::timestamptz is null or start < $end::timestamptz)
        and ($service::varchar is null or service = $service)
    and ($instance::varchar is null or instance = $instance)
    group by service, trace_key)
group by service
