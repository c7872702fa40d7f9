-- How did every request of the window do, and when? One row per complete request, as judged for goodput. Start in microseconds since 1970, milliseconds.
select epoch_us(start) as start_us, status = 'error' as error, ttft_ms, itl_ms, tpot_ms, e2e_ms, output_tokens
from v_requests
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($model::varchar is null or model = $model)
    and ($route::varchar is null or route = $route)
    and ($tenant::varchar is null or tenant = $tenant)
    and ($workload::varchar is null or workload = $workload)
    and not list_contains($without::varchar[], workload)
    and complete
