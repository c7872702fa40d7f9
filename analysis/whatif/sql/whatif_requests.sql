-- Whose latency does a what-if change? One row per complete request of the window, the latest $most of them. Times in microseconds since 1970,
-- durations in milliseconds; `trace_id` is of the request, a trace or a turn of one, as in the other queries here; `trace_key` joins the limits that a request came with (slo_headers.sql).
select
    printf('%016x', trace_key) as trace_id, trace_key, epoch_us(start) as start_us, service, route, model, provider, tenant, session, status = 'error' as error, error_type, engine_only,
    e2e_ms, ttft_ms, tpot_ms, itl_ms, input_tokens, output_tokens, cached_tokens, reasoning_tokens, max_tokens, llm_calls, tool_calls, attempts, truncated,
    network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms, kv_transfer_ms, prefill_ms, decode_ms, tool_ms, post_ms, other_ms,
    first_token_ms, generation_ms, ttft_network_ms, ttft_gateway_ms, ttft_retrieval_ms, ttft_prompt_ms, ttft_guardrail_ms, ttft_queue_ms,
    ttft_kv_transfer_ms, ttft_prefill_ms, ttft_decode_ms, ttft_tool_ms, ttft_post_ms, ttft_other_ms, ttft_first_token_ms, ttft_generation_ms
from v_requests
where complete
    and asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
order by start desc, trace_key
limit $most
