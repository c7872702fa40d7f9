-- Which latencies do requests carry that no limit is on? One row per complete, successful request with any of them. Milliseconds; `later_tokens` is how many
-- tokens follow the first one; the first token of any model call counts where that of the answer is not known.
select
    itl_max_ms, itl_ms, usable_ms, case when ttft_ms is null then first_model_token_ms end as first_model_token_ms,
    greatest(coalesce(output_tokens, 0) - 1, 0)::double as later_tokens, sample_weight
from v_requests
where complete and status <> 'error'
    and (itl_max_ms is not null or itl_ms is not null or usable_ms is not null or (ttft_ms is null and first_model_token_ms is not null))
    and asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
