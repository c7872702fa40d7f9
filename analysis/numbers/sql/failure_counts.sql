-- With which types of error did the complete requests of a window fail? One row per type, most requests first, at most $most; `waited_ms` is the median time that they took.
select error_type, count(*) as n, median(e2e_ms) as waited_ms
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete and status = 'error'
group by error_type
order by n desc, error_type
limit $most
