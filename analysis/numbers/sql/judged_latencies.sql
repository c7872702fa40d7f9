-- How long did the complete, successful requests of a window take? One row per request, milliseconds.
select ttft_ms, itl_ms, tpot_ms, e2e_ms
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete and status <> 'error'
