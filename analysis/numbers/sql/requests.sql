-- Which requests started in the window, and where did their time go? One row per request that passes the filter.
-- Times in microseconds since 1970, durations in milliseconds. Ids are left out: at a million rows their text costs more than all the rest.
select
    epoch_us(start) as start_us, epoch_us("end") as end_us, service, instance, route, model, provider, tenant, version,
    status = 'error' as error, error_type, complete, engine_only,
    e2e_ms, ttft_ms, ttft_source, itl_ms, tpot_ms, output_tokens, max_tokens, llm_calls, attempts, truncated,
    network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms, kv_transfer_ms, prefill_ms, decode_ms,
    tool_ms, post_ms, other_ms, first_token_ms, generation_ms,
    ttft_network_ms, ttft_gateway_ms, ttft_retrieval_ms, ttft_prompt_ms, ttft_guardrail_ms, ttft_queue_ms, ttft_kv_transfer_ms,
    ttft_prefill_ms, ttft_decode_ms, ttft_tool_ms, ttft_post_ms, ttft_other_ms, ttft_first_token_ms, ttft_generation_ms,
    input_tokens, cached_tokens, reasoning_tokens, tool_calls, trace_key, sampling, sample_weight, spans, inferred_ms, clipped_spans, skewed_spans, row_key
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
