-- How did every request of the window do, and when? One row per complete request, as judged for goodput. Start in microseconds since 1970, milliseconds.
-- `trace_key` joins the limits that a request came with (slo_headers.sql).
select epoch_us(start) as start_us, status = 'error' as error, ttft_ms, itl_ms, tpot_ms, e2e_ms, output_tokens, sampling, sample_weight, trace_key, row_key
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
