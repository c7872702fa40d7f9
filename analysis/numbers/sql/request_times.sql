-- Which requests started in the window, and where did their time go, stage by stage? One row per request, the same as requests.sql in the same order.
-- Times in microseconds since 1970, durations in milliseconds.
select
    epoch_us(start) as start_us, epoch_us("end") as end_us, complete, e2e_ms, network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms,
    kv_transfer_ms, prefill_ms, decode_ms, tool_ms, post_ms, other_ms, first_token_ms, generation_ms, row_key
from v_request_times
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
