-- What is known of every complete request of the window that slow ones might share? One row per request. Start in microseconds since 1970, milliseconds.
-- `trace_key` joins the limits that a request came with (slo_headers.sql).
select epoch_us(start) as start_us, status = 'error' as error, ttft_ms, itl_ms, tpot_ms, e2e_ms,
    service, instance, route, model, provider, tenant, version, session, user_hash, error_type,
    case truncated when true then 'cut at max_tokens' when false then 'finished' end as finish,
    case when llm_calls = 0 then 'no model call' when tool_calls > 0 then 'with tools' else 'without tools' end as calls_of,
    input_tokens, output_tokens, case when input_tokens > 0 then least(1.0, coalesce(cached_tokens, 0) / input_tokens) end as cached_ratio,
    cached_tokens is not null as tells_cached, reasoning_tokens, max_tokens, llm_calls, tool_calls, attempts, sampling, sample_weight,
    network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms, kv_transfer_ms, prefill_ms, decode_ms, tool_ms, post_ms, other_ms, first_token_ms, generation_ms,
    ttft_network_ms, ttft_gateway_ms, ttft_retrieval_ms, ttft_prompt_ms, ttft_guardrail_ms, ttft_queue_ms, ttft_kv_transfer_ms, ttft_prefill_ms, ttft_decode_ms, ttft_tool_ms, ttft_post_ms, ttft_other_ms, ttft_first_token_ms, ttft_generation_ms,
    trace_key, row_key
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
