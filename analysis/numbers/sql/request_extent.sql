-- How many complete requests does the window hold, and between which starts? One row.
select count(*) as n, min(start) as first, max(start) as last
from v_request_times
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
