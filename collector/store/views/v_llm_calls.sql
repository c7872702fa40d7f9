-- Which model calls were made, each counted once? One row per generation call (failed ones included). Milliseconds.
-- ttft_ms is the client's if it measured one, else the engine's; ttft_source says which.
create or replace view v_llm_calls as
select
    trace_hex(trace_hi, trace_lo) as trace_id, request_key(trace_hi, trace_lo, turn_span_id) as trace_key, span_hex(span_id) as span_id, case when engine_span_id is not null then span_hex(engine_span_id) end as engine_span_id,
    coalesce(engine_span_id = span_id, false) as engine_alone,
    response_id, start_ns, make_timestamptz(start_ns // 1000) as start, make_timestamptz((start_ns + duration_ns) // 1000) as "end",
    service, instance, engine_instance, route, model, provider, coalesce(workload, 'chat') as workload, session, tenant, user_hash, turn, prefix_hash, streaming,
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, max_tokens, temperature,
    ttft_ns / 1e6 as ttft_ms, ttft_source_name(ttft_source) as ttft_source, ttft_client_ns / 1e6 as ttft_client_ms, ttft_engine_ns / 1e6 as ttft_engine_ms,
    duration_ns / 1e6 as e2e_ms, engine_e2e_ns / 1e6 as engine_e2e_ms, tpot_ns / 1e6 as tpot_ms, itl_ns / 1e6 as itl_ms, itl_max_ns / 1e6 as itl_max_ms,
    itl_source, tpot_reason, queue_ns / 1e6 as queue_ms, prefill_ns / 1e6 as prefill_ms, decode_ns / 1e6 as decode_ms,
    finish_reason, error, error_type, http_status, attempts, attempts_source, wasted_ns / 1e6 as wasted_ms, wasted_tokens, retry_cause, on_path,
    predicted_p50, predicted_p90, predictor
from llm_calls;
