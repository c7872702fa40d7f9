-- How long did the complete, successful requests of a window take, stage by stage, in all and up to the first token? One row per request, milliseconds.
select
    trace_key, ttft_ms, itl_ms, tpot_ms, e2e_ms, ttft_source,
    network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms, kv_transfer_ms, prefill_ms, decode_ms, tool_ms, post_ms, other_ms,
    first_token_ms, generation_ms,
    ttft_network_ms, ttft_gateway_ms, ttft_retrieval_ms, ttft_prompt_ms, ttft_guardrail_ms, ttft_queue_ms, ttft_kv_transfer_ms, ttft_prefill_ms,
    ttft_decode_ms, ttft_tool_ms, ttft_post_ms, ttft_other_ms, ttft_first_token_ms, ttft_generation_ms
from v_requests
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete and status <> 'error'
