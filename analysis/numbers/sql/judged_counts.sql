-- How many requests of a window are complete, failed, cut off, and beyond which limits? One row per combination. A latency's state is null where it is not known, else
-- whether it is beyond its limit ($ttft, $itl, $tpot, $e2e in milliseconds; null: no limit, never beyond). Latencies among $spoiled count as not known.
select
    complete, status = 'error' as error, coalesce(output_tokens <= 1, false) as one_token, truncated,
    case when ttft_ms is not null and not list_contains($spoiled::varchar[], 'ttft') then coalesce(ttft_ms > $ttft::double, false) end as ttft,
    case when itl_ms is not null and not list_contains($spoiled::varchar[], 'itl') then coalesce(itl_ms > $itl::double, false) end as itl,
    case when tpot_ms is not null and not list_contains($spoiled::varchar[], 'tpot') then coalesce(tpot_ms > $tpot::double, false) end as tpot,
    case when e2e_ms is not null and not list_contains($spoiled::varchar[], 'e2e') then coalesce(e2e_ms > $e2e::double, false) end as e2e,
    case when ttft_ms is not null then ttft_source end as ttft_source,
    count(*) as n, sum(llm_calls)::bigint as llm_calls, sum(spans)::bigint as spans, min(sample_weight) as least_weight, max(sample_weight) as most_weight,
    count(sampling) as marked
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
group by all
