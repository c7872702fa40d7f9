-- Which requests of the window should a person look at first? One row per request, largest, newest or failed first, or with most time in a stage; total counts all that match. Milliseconds.
-- min_ms <= metric < max_ms keeps the requests of one heat-map row.
select
    trace_id, start, service, route, model, status, error_type, e2e_ms, ttft_ms, output_tokens,
    network_ms, gateway_ms, retrieval_ms, prompt_ms, guardrail_ms, queue_ms, kv_transfer_ms, prefill_ms, first_token_ms, decode_ms, generation_ms,
    tool_ms, post_ms, other_ms,
    ttft_network_ms, ttft_gateway_ms, ttft_retrieval_ms, ttft_prompt_ms, ttft_guardrail_ms, ttft_queue_ms, ttft_kv_transfer_ms, ttft_prefill_ms,
    ttft_first_token_ms, ttft_decode_ms, ttft_generation_ms, ttft_tool_ms, ttft_post_ms, ttft_other_ms, count(*) over () as total
from (select *, case $metric when 'ttft' then ttft_ms when 'itl' then itl_ms when 'tpot' then tpot_ms else e2e_ms end as judged_ms from v_requests)
where asked_for(start_ns, service, instance, model, route, tenant, workload, $start, $end, $service, $instance, $model, $route, $tenant, $workload, $without)
    and complete
    and ($status::varchar is null or (status = 'error') = ($status = 'error'))
    and ($min_ms::double is null or judged_ms >= $min_ms)
    and ($max_ms::double is null or judged_ms < $max_ms)
order by $sort = 'errors' and status <> 'ok' desc, case $sort
    when 'ttft' then ttft_ms when 'output_tokens' then output_tokens
    when 'start' then epoch_us(start)::double when 'errors' then epoch_us(start)::double
    when 'network' then network_ms when 'gateway' then gateway_ms when 'retrieval' then retrieval_ms when 'prompt' then prompt_ms
    when 'guardrail' then guardrail_ms when 'queue' then queue_ms when 'kv_transfer' then kv_transfer_ms when 'prefill' then prefill_ms
    when 'first_token' then first_token_ms when 'decode' then decode_ms when 'generation' then generation_ms when 'tool' then tool_ms
    when 'post' then post_ms when 'other' then other_ms
    else e2e_ms end desc nulls last,
    start desc, trace_id
limit $limit
