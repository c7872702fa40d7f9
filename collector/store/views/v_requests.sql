-- Which user-visible requests were there, and where did their time go? One row per request. Milliseconds and ratios.
-- A trace without a model call is a request when its root serves somebody. Where others make calls, its workload is 'side' (another route of a service that makes
-- some) or 'other' (a service that makes none), but for a (service, route) that makes some itself (cache hits, refusals).
-- row_key is where the row is stored: it orders what is read at once, and means nothing afterwards.
-- <stage>_ms sum to e2e_ms exactly (wait_user_ms stands outside e2e_ms); ttft_<stage>_ms sum to ttft_ms.
create or replace view v_requests as
select
    trace_hex(trace_hi, trace_lo) as trace_id, request_key(trace_hi, trace_lo, turn_span_id) as trace_key,
    start_ns, make_timestamptz(start_ns // 1000) as start, make_timestamptz((start_ns + e2e_ns + wait_user_ns) // 1000) as "end",
    r.service, r.instance, r.route, r.name, r.model, r.provider, case when r.kind = 'calls' then coalesce(r.workload, 'chat') else r.kind end as workload, r.tenant, r.session, r.user_hash, r.version,
    case when r.error then 'error' else 'ok' end as status,
    -- nginx's 499, which proxies and gateways have taken over, is no error of the service: it says who gave up, where no type does.
    case when r.error and r.http_status = 499 and coalesce(r.error_type, '499') = '499' then 'client closed request' else r.error_type end as error_type,
    r.http_status, r.complete, r.engine_only,
    e2e_ns / 1e6 as e2e_ms, ttft_ns / 1e6 as ttft_ms, ttft_source_name(ttft_source) as ttft_source,
    first_model_token_ns / 1e6 as first_model_token_ms, first_answer_ns / 1e6 as first_answer_ms, usable_ns / 1e6 as usable_ms,
    itl_ns / 1e6 as itl_ms, itl_max_ns / 1e6 as itl_max_ms, tpot_ns / 1e6 as tpot_ms,
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, max_tokens, llm_calls, tool_calls, attempts, truncated,
    network_ns / 1e6 as network_ms, gateway_ns / 1e6 as gateway_ms, retrieval_ns / 1e6 as retrieval_ms, prompt_ns / 1e6 as prompt_ms,
    guardrail_ns / 1e6 as guardrail_ms, queue_ns / 1e6 as queue_ms, kv_transfer_ns / 1e6 as kv_transfer_ms, prefill_ns / 1e6 as prefill_ms,
    decode_ns / 1e6 as decode_ms, tool_ns / 1e6 as tool_ms, post_ns / 1e6 as post_ms, wait_user_ns / 1e6 as wait_user_ms,
    other_ns / 1e6 as other_ms, first_token_ns / 1e6 as first_token_ms, generation_ns / 1e6 as generation_ms,
    ttft_network_ns / 1e6 as ttft_network_ms, ttft_gateway_ns / 1e6 as ttft_gateway_ms, ttft_retrieval_ns / 1e6 as ttft_retrieval_ms,
    ttft_prompt_ns / 1e6 as ttft_prompt_ms, ttft_guardrail_ns / 1e6 as ttft_guardrail_ms, ttft_queue_ns / 1e6 as ttft_queue_ms,
    ttft_kv_transfer_ns / 1e6 as ttft_kv_transfer_ms, ttft_prefill_ns / 1e6 as ttft_prefill_ms, ttft_decode_ns / 1e6 as ttft_decode_ms,
    ttft_tool_ns / 1e6 as ttft_tool_ms, ttft_post_ns / 1e6 as ttft_post_ms, ttft_wait_user_ns / 1e6 as ttft_wait_user_ms,
    ttft_other_ns / 1e6 as ttft_other_ms, ttft_first_token_ns / 1e6 as ttft_first_token_ms, ttft_generation_ns / 1e6 as ttft_generation_ms,
    case when e2e_ns > 0 then other_ns / e2e_ns end as unattributed_ratio,
    r.row_key, sampling, coalesce(sample_weight, 1.0) as sample_weight, spans, inferred_ns / 1e6 as inferred_ms, clipped_spans, skewed_spans
from kinds_of_requests r;
