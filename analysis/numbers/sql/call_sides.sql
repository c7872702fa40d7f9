-- What did client and engine each measure of the same model call? One row per call of the window that both tell of. Milliseconds, null where one does not.
-- The engine's time per token is its decode time over the tokens after the first one.
select case when ttft_engine_ms is not null then ttft_client_ms end as ttft_client_ms, case when ttft_client_ms is not null then ttft_engine_ms end as ttft_engine_ms,
    case when engine_e2e_ms is not null then e2e_ms end as e2e_client_ms, engine_e2e_ms as e2e_engine_ms,
    case when output_tokens > 1 and decode_ms is not null then itl_ms end as itl_client_ms,
    case when output_tokens > 1 and itl_ms is not null then decode_ms / (output_tokens - 1) end as itl_engine_ms
from v_llm_calls
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and not error and (ttft_engine_ms is not null or engine_e2e_ms is not null) and not engine_alone
