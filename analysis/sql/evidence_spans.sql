-- What did the spans of a stretch of time look like? One row per span of every $every-th trace. Times in seconds after $start, durations in milliseconds.
-- Texts that somebody wrote are only there as length and hash, which is enough to tell repeats.
select
    trace_key, hash(span_id) as span_key, hash(parent_span_id) as parent_key, parent_span_id is null as root,
    epoch_us(start) / 1e6 - epoch($start::timestamptz) as start_s, duration_ms, service, instance, name, kind, status, stage, role,
    operation, model, input_tokens, output_tokens, http_status, error_type, depends_on,
    attributes['gen_ai.tool.name'] as tool, coalesce(attributes['gen_ai.tool.call.arguments'], attributes['input.value']) as arguments,
    coalesce(attributes['overrun.prompt_hash'], attributes['gen_ai.prompt.hash']) as prompt_hash,
    coalesce(attributes['http.response.header.retry-after'], attributes['retry_after'], attributes['retry-after']) as retry_after,
    coalesce(attributes['http.request.resend_count'], attributes['gen_ai.request.attempt'], attributes['retry.attempt']) as resend,
    attributes['http.conn.reused'] as reused, attributes['server.address'] as peer,
    coalesce(attributes['cloud.region'], resource_attributes['cloud.region']) as region,
    coalesce(attributes['server.region'], attributes['peer.region'], attributes['net.peer.region']) as peer_region,
    coalesce(attributes['batch.id'], attributes['gen_ai.batch.id']) as batch
from sampled_spans($every::ubigint)
where start >= $start::timestamptz and start < $end::timestamptz
order by trace_key, start_s
