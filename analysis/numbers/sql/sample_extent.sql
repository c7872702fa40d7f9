-- From when to when are the complete requests of a window, and from where on is one slow? One row: microseconds since 1970, and the quantile $slow of E2E and TTFT
-- (milliseconds) among one trace in $every.
select
    min(epoch_us(start)) as start_us, max(epoch_us("end")) as end_us,
    quantile_cont(e2e_ms, $slow::double) filter (trace_key % $every::ubigint = 0) as slow_ms,
    quantile_cont(ttft_ms, $slow::double) filter (trace_key % $every::ubigint = 0) as slow_ttft_ms
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
