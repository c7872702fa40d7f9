-- How did the requests of a former window do, that may be a baseline? One row per complete request, as judged for goodput, with the type of its error.
-- Start in microseconds since 1970, milliseconds.
select epoch_us(start) as start_us, status = 'error' as error, error_type, ttft_ms, itl_ms, tpot_ms, e2e_ms, output_tokens, trace_key, row_key
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
