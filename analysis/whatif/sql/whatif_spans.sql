-- What are the span trees of these requests? One row per span of the given time range. Times in nanoseconds since 1970.
select
    printf('%016x', trace_key) as trace_id, span_id, parent_span_id, service, instance, name, kind, stage, status, epoch_us(start) as start_us, duration_ms, attributes
from sampled_spans(1::ubigint, $start::timestamptz, $end::timestamptz, null::ubigint[])
order by trace_key, start, span_id
