-- What is stored of the traces in `wanted`? One row per span. Nanoseconds. The scan is bounded: spans that started before $floor or are numbered outside
-- [$since, $until) are not looked at.
-- Not sorted (collector/ingest/reading.py does that, at a fifth of the cost). The ids are matched first, and the wide rows only read for those.
select
    s.trace_hi, s.trace_lo, s.span_id, s.parent_id, s.start_ns, s.duration_ns, s.name, s.kind, s.status, s.flags, s.trace_state, s.stage, s.role,
    s.source_id, src.service, src.instance, src.version, src.scope_name,
    s.operation, s.model, s.provider, s.response_id, s.input_tokens, s.output_tokens, s.cached_tokens, s.reasoning_tokens, s.max_tokens, s.temperature,
    s.streaming, s.ttft_ns, coalesce(s.ttft_source, 0::utinyint) as ttft_source, s.queue_ns, s.prefill_ns, s.decode_ns, s.engine_e2e_ns, s.chunks, s.chunk_span_ns,
    s.chunk_gap_max_ns, s.usable_ns, s.finish_reason, s.error_type, s.http_status, s.attempts, s.route, s.session, s.tenant, s.user_hash, s.workload, s.turn,
    s.prefix_hash, s.depends_on, s.seq
from stored_spans s semi join (select seq from spans semi join wanted using (trace_hi, trace_lo) where start_ns >= $floor and seq >= $since and seq < $until) using (seq) left join sources src using (source_id)
where s.start_ns >= $floor and s.seq >= $since and s.seq < $until;
