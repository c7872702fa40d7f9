-- Which model calls shared the engines and providers with the requests of a what-if? One row per call of any service, route or tenant: they all
-- compete for the same batches. Times in microseconds since 1970 (`engine_start_us` by the engine's clock), durations in milliseconds.
with engines as (
    select trace_id, span_id as engine_span_id, epoch_us(min(start)) as engine_start_us
    from v_engine_spans
    where start >= $start::timestamptz - to_seconds(600) and start < $end::timestamptz + to_seconds(600)
    group by trace_id, span_id
)
select
    printf('%016x', trace_key) as trace_id, span_id, epoch_us(start) as start_us, epoch_us("end") as end_us, service, instance, engine_instance, route, model, provider, workload,
    session, tenant, prefix_hash, streaming, input_tokens, output_tokens, cached_tokens, reasoning_tokens, max_tokens, ttft_ms, ttft_source,
    ttft_client_ms, ttft_engine_ms, e2e_ms, engine_e2e_ms, engine_start_us, tpot_ms, queue_ms, prefill_ms, decode_ms, finish_reason, error, error_type,
    http_status, attempts, on_path, predicted_p50, engine_alone
from v_llm_calls left join engines using (trace_id, engine_span_id)
where start >= $start::timestamptz and start < $end::timestamptz
order by start, trace_key, span_id
