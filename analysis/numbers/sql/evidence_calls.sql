-- Which model calls were made in a stretch of time, whoever made them? One row per call: those that shared an engine count whatever the filter.
-- At most the $most first ones, which begin by $last_ns (calls_until.sql). Times in seconds after $start, durations in milliseconds.
select
    trace_key, on_path, epoch_us(start) / 1e6 - epoch($start::timestamptz) as start_s, e2e_ms, queue_ms, prefill_ms, decode_ms, engine_e2e_ms,
    ttft_ms, ttft_client_ms, ttft_engine_ms, tpot_ms, itl_max_ms, input_tokens, output_tokens, cached_tokens, reasoning_tokens, max_tokens,
    service, instance, engine_instance, route, model, provider, workload, session, tenant, turn, prefix_hash, streaming,
    finish_reason, error, error_type, http_status, attempts, attempts_source, wasted_ms, retry_cause, tpot_reason, engine_alone
from v_llm_calls
where starts_within(start_ns, $start, $end) and start_ns <= $last_ns
order by start_s
limit $most
