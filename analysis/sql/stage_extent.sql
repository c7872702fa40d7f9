-- Which stages took any time in the window? One row: the longest time per stage, null where no request has the column. Milliseconds.
select
    max(network_ms) as network_ms, max(gateway_ms) as gateway_ms, max(retrieval_ms) as retrieval_ms, max(prompt_ms) as prompt_ms,
    max(guardrail_ms) as guardrail_ms, max(queue_ms) as queue_ms, max(kv_transfer_ms) as kv_transfer_ms, max(prefill_ms) as prefill_ms,
    max(decode_ms) as decode_ms, max(tool_ms) as tool_ms, max(post_ms) as post_ms, max(other_ms) as other_ms, max(first_token_ms) as first_token_ms,
    max(generation_ms) as generation_ms, max(ttft_network_ms) as ttft_network_ms, max(ttft_gateway_ms) as ttft_gateway_ms,
    max(ttft_retrieval_ms) as ttft_retrieval_ms, max(ttft_prompt_ms) as ttft_prompt_ms, max(ttft_guardrail_ms) as ttft_guardrail_ms,
    max(ttft_queue_ms) as ttft_queue_ms, max(ttft_kv_transfer_ms) as ttft_kv_transfer_ms, max(ttft_prefill_ms) as ttft_prefill_ms,
    max(ttft_decode_ms) as ttft_decode_ms, max(ttft_tool_ms) as ttft_tool_ms, max(ttft_post_ms) as ttft_post_ms, max(ttft_other_ms) as ttft_other_ms,
    max(ttft_first_token_ms) as ttft_first_token_ms, max(ttft_generation_ms) as ttft_generation_ms
from v_requests
where ($start::timestamptz is null or start >= $start::timestamptz)
    and ($end::timestamptz is null or start < $end::timestamptz)
    and ($service::varchar is null or service = $service)
    and ($model::varchar is null or model = $model)
    and ($route::varchar is null or route = $route)
    and ($tenant::varchar is null or tenant = $tenant)
    and ($workload::varchar is null or workload = $workload)
    and not list_contains($without::varchar[], workload)
