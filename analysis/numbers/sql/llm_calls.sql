-- Which model calls started in the window? One row per call that passes the filter. Milliseconds.
select *
from v_llm_calls
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
