-- How many folded requests of the window may have the names that are asked for, without being found by them? Their names were put together as `(other)`
-- (collector/lifecycle/rollups.py), or an instance is asked for, and minutes are not kept by instance. One row.
select coalesce(sum(requests), 0)::bigint as requests
from v_rollup_counts
where minute < $split::timestamptz and starts_within(minute_ns, $start, $end)
    and (service = $other and route = $other and model = $other or $instance::varchar is not null
        and asked_for(minute_ns, service, null, model, route, tenant, workload, null, null, $service, null, $model, $route, $tenant, $workload, $without))
